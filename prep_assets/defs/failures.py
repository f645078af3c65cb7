"""Notifications of runs that fail: by a webhook as Slack has them, or by e-mail."""

from __future__ import annotations

import json
import os
import smtplib
import urllib.request
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

import dagster as dg

from prep_assets.defs.site import Site
from prep_assets.errors import ConfigError

TELL, SMTP = "PREP_ASSETS_TELL", "PREP_ASSETS_SMTP"
"""Environment variables: whom to tell, addresses divided by commas (``https://…`` of a webhook, ``mailto:NAME@HOST``); and the mail server, as
``smtp://USER:PASSWORD@HOST:PORT``, or ``smtps://`` for one that speaks TLS from the start."""
UI = "PREP_ASSETS_UI_URL"
"""Where the web UI is, for a link to the run."""
SECONDS = 20
SHOWN = 2000


def failures(site: Site) -> dg.SensorDefinition:
    """The sensor that follows all runs of the code location."""

    @dg.run_failure_sensor(
        name=site.named("tell_of_failures"),
        description=f"Tells of runs that fail, to the webhooks and e-mail addresses in {TELL}.",
    )
    def tell_of_failures(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        whom = addresses()
        if not whom:
            return dg.SkipReason(f"{TELL} names nobody")
        subject = f"prep-assets: run {context.dagster_run.run_id[:8]} of {context.dagster_run.job_name} failed"
        reasons = [f"{event.step_key}: {_reason(event)}" for event in context.get_step_failure_events()]
        text = "\n\n".join(
            [*reasons, *([] if reasons else [context.failure_event.message or "no reason is given"]), *_link(context.dagster_run.run_id)]
        )
        for address in whom:
            tell(address, subject, text)
        return None

    return tell_of_failures


def addresses() -> list[str]:
    """Whom the environment says to tell."""
    return [each.strip() for each in os.environ.get(TELL, "").split(",") if each.strip()]


def tell(address: str, subject: str, text: str) -> None:
    """Send a message.

    Raises:
        ConfigError: the address is of another kind, or there is no mail server for it.
        OSError: the message was not accepted.
    """
    scheme, _, rest = address.partition(":")
    if scheme in ("https", "http"):
        body = json.dumps({"text": f"*{subject}*\n```{text}```"}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=SECONDS).close()
    elif scheme == "mailto":
        _mail(rest, subject, text)
    else:
        raise ConfigError(f"{TELL} holds an address that is neither https:// nor mailto: ({scheme}:…)")


def _mail(to: str, subject: str, text: str) -> None:
    server = urlsplit(os.environ.get(SMTP, ""))
    if server.scheme not in ("smtp", "smtps") or not server.hostname:
        raise ConfigError(f"{TELL} names an e-mail address, so {SMTP} must be smtp://USER:PASSWORD@HOST:PORT or smtps://…")
    message = EmailMessage()
    message["Subject"], message["To"], message["From"] = subject, to, unquote(server.username or "") or to
    message.set_content(text)
    kind = smtplib.SMTP_SSL if server.scheme == "smtps" else smtplib.SMTP
    with kind(server.hostname, server.port or 0, timeout=SECONDS) as connection:
        connection.ehlo()
        if server.scheme == "smtp" and connection.has_extn("starttls"):
            connection.starttls()
        if server.password:
            connection.login(unquote(server.username or ""), unquote(server.password))
        connection.send_message(message)


def _reason(event: dg.DagsterEvent) -> str:
    """The last cause of a failed step, which is the sentence that helps."""
    error = event.step_failure_data.error
    while error is not None and error.cause is not None:
        error = error.cause
    return (error.message if error else event.message or "").strip()[:SHOWN]


def _link(run_id: str) -> list[str]:
    server = os.environ.get(UI)
    return [f"{server.rstrip('/')}/runs/{run_id}"] if server else []
