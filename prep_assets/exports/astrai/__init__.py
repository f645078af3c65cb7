"""AstrAI's memory-mapped layout: ``shard_0000/{meta.json, <key>.bin}``, everything int32 but rewards, which are float32."""
