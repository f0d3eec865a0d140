/* The TMPDIR of one attempt. Independent of the governor and of processes. */
#define _GNU_SOURCE
#include "launcher.h"
#include "programs.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEP = 16, COPIED_BYTES = 1 << 30 };

/* Creates a folder in another one; `path` is empty if that fails. */
static void make_inside(char *path, const char *parent, const char *name)
{
    int length = snprintf(path, PATH_MAX, "%s/%s-XXXXXX", parent, name);
    if (length >= PATH_MAX || !mkdtemp(path))
        path[0] = '\0';
}

/* Resolves the parent: if it is a link, its target may change before the command exits. */
void folder_make(char *path, const char *parent)
{
    char real[PATH_MAX];
    bool known = parent[0] == '/' && strlen(parent) < sizeof real;
    if (known)
        follow_links(strcpy(real, parent));
    else
        known = realpath(parent, real);
    make_inside(path, known ? real : parent, "stoker");
}

static int remove_entry(const char *path, const struct stat *found, int kind, struct FTW *place)
{
    (void)found, (void)kind, (void)place;
    remove(path);
    return 0;
}

void folder_remove(const char *path)
{
    if (path[0] && rmdir(path) < 0)
        nftw(path, remove_entry, DEEP, FTW_DEPTH | FTW_PHYS);
}

/* nftw passes no argument to its function. */
static const char *source, *target;

static bool copy_file(const char *from, const char *to, mode_t mode)
{
    int in = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int out = in >= 0 ? open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0777) : -1;
    ssize_t count = out >= 0 ? 1 : -1;
    while (count > 0)
        count = sendfile(out, in, NULL, COPIED_BYTES);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return count == 0;
}

/* Copies folders and regular files. Returns non-zero, which ends the walk, if one cannot be copied. */
static int copy_entry(const char *path, const struct stat *found, int kind, struct FTW *place)
{
    char to[PATH_MAX];
    if (place->level == 0)
        return 0; /* the target exists */
    if (snprintf(to, sizeof to, "%s%s", target, path + strlen(source)) >= (int)sizeof to)
        return 1;
    if (kind == FTW_D)
        return mkdir(to, 0700);
    return kind == FTW_F && S_ISREG(found->st_mode) ? !copy_file(path, to, found->st_mode) : 0;
}

bool folder_keep(const char *path, const char *parent, char *kept)
{
    kept[0] = '\0';
    if (!path[0] || rmdir(path) == 0 || errno != ENOTEMPTY)
        return false;
    make_inside(kept, parent, "stoker-left");
    if (!kept[0])
        return false;
    source = path, target = kept;
    if (rename(path, kept) == 0 || nftw(path, copy_entry, DEEP, FTW_PHYS) == 0)
        return true;
    folder_remove(kept);
    return false;
}
