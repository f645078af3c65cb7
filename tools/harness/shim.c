/* Counts the calls of a process that touch files below one folder, and at the one with a given number ends the process or lets the call fail.
   Loaded with LD_PRELOAD, so that it sees Python, NumPy, HDF5, Arrow and Rust alike. Built by shim.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OFF, COUNT, KILL, FAIL, FAIL_ON };
static volatile int mode = OFF, wanted_errno = 0, log_fd = -1;
static volatile long at = 0, seen = 0;
static char root[4096];
static size_t root_length = 0;

void shim_arm(int new_mode, long number, int error, const char *folder, int log) {
    mode = OFF;
    strncpy(root, folder, sizeof root - 1);
    root_length = strlen(root);
    at = number, seen = 0, wanted_errno = error, log_fd = log;
    mode = new_mode;
}
long shim_seen(void) { return seen; }
void shim_off(void) { mode = OFF; }

static int below(const char *path) { return path && root_length && strncmp(path, root, root_length) == 0; }

static int fd_below(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}
static int at_below(int dir, const char *path) {
    if (path && path[0] == '/') return below(path);
    return dir == AT_FDCWD ? 0 : fd_below(dir);
}
/* 1 where the call has to fail */
static int hit(const char *name, int changes, int inside) {
    if (mode == OFF || !inside) return 0;
    long number = __sync_add_and_fetch(&seen, 1);
    if (log_fd >= 0) dprintf(log_fd, "%s %d\n", name, changes);
    if (mode == KILL && number == at) raise(SIGKILL);
    if ((mode == FAIL && number == at) || (mode == FAIL_ON && number >= at && changes)) { errno = wanted_errno; return 1; }
    return 0;
}
#define NEXT(name) static __typeof__(&name) next; if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define OPEN(name) int name(const char *path, int flags, ...) { \
    NEXT(name); va_list list; va_start(list, flags); mode_t bits = va_arg(list, mode_t); va_end(list); \
    if (hit("open", !!(flags & (O_CREAT | O_WRONLY | O_RDWR)), below(path))) return -1; return next(path, flags, bits); }
OPEN(open) OPEN(open64)
#define OPENAT(name) int name(int dir, const char *path, int flags, ...) { \
    NEXT(name); va_list list; va_start(list, flags); mode_t bits = va_arg(list, mode_t); va_end(list); \
    if (hit("open", !!(flags & (O_CREAT | O_WRONLY | O_RDWR)), at_below(dir, path))) return -1; return next(dir, path, flags, bits); }
OPENAT(openat) OPENAT(openat64)
#define CALL(result, name, parameters, arguments, label, changes, inside) result name parameters { \
    NEXT(name); if (hit(label, changes, inside)) return (result)-1; return next arguments; }
CALL(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), "write", 1, fd_below(fd))
CALL(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t to), (fd, data, size, to), "write", 1, fd_below(fd))
CALL(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t to), (fd, data, size, to), "write", 1, fd_below(fd))
CALL(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size), "read", 0, fd_below(fd))
CALL(ssize_t, pread, (int fd, void *data, size_t size, off_t from), (fd, data, size, from), "read", 0, fd_below(fd))
CALL(ssize_t, pread64, (int fd, void *data, size_t size, off64_t from), (fd, data, size, from), "read", 0, fd_below(fd))
CALL(int, fsync, (int fd), (fd), "fsync", 1, fd_below(fd))
CALL(int, fdatasync, (int fd), (fd), "fsync", 1, fd_below(fd))
CALL(int, ftruncate, (int fd, off_t size), (fd, size), "ftruncate", 1, fd_below(fd))
CALL(int, ftruncate64, (int fd, off64_t size), (fd, size), "ftruncate", 1, fd_below(fd))
CALL(int, rename, (const char *from, const char *to), (from, to), "rename", 1, below(to))
CALL(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), "rename", 1, at_below(b, to))
CALL(int, symlink, (const char *to, const char *path), (to, path), "symlink", 1, below(path))
CALL(int, symlinkat, (const char *to, int dir, const char *path), (to, dir, path), "symlink", 1, at_below(dir, path))
CALL(int, mkdir, (const char *path, mode_t bits), (path, bits), "mkdir", 1, below(path))
CALL(int, mkdirat, (int dir, const char *path, mode_t bits), (dir, path, bits), "mkdir", 1, at_below(dir, path))
CALL(int, rmdir, (const char *path), (path), "rmdir", 0, below(path))
CALL(int, unlink, (const char *path), (path), "unlink", 0, below(path))
CALL(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags), "unlink", 0, at_below(dir, path))
CALL(int, flock, (int fd, int how), (fd, how), "flock", 0, fd_below(fd))
void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t from) {
    NEXT(mmap);
    if (fd >= 0 && hit("mmap", 0, fd_below(fd))) return MAP_FAILED;
    return next(where, size, protection, flags, fd, from);
}
void *mmap64(void *where, size_t size, int protection, int flags, int fd, off64_t from) {
    NEXT(mmap64);
    if (fd >= 0 && hit("mmap", 0, fd_below(fd))) return MAP_FAILED;
    return next(where, size, protection, flags, fd, from);
}
