/* Tokens of the job server for what a command starts: linkers that optimize, cargo, and others. The build tool
 * has a wide window of jobs, most of which wait, so its own tokens are too many for programs that work.
 *
 * The tokens of all commands of a run with the same number lie in one fifo. A launcher that finds that no other
 * has it open fills it again, since a command that was killed has lost the tokens that it had. */
#define _GNU_SOURCE
#include "compilers.h"
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TOKENS = 4096 }; /* that are sure to fit into a fifo */

/* Finds the value of the option that names the job server. */
static const char *find_server(const char *flags, size_t *length)
{
    static const char *const OPTIONS[] = {"--jobserver-auth=", "--jobserver-fds="};
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++) {
        const char *found = strstr(flags, OPTIONS[i]);
        if (found) {
            found += strlen(OPTIONS[i]);
            *length = strcspn(found, " ");
            return found;
        }
    }
    return NULL;
}

/* Fills the fifo if no other launcher uses it. */
static void fill(int fifo, int tokens)
{
    char old[MOST_TOKENS], fresh[MOST_TOKENS];
    if (flock(fifo, LOCK_EX | LOCK_NB) == 0) {
        while (read(fifo, old, sizeof old) > 0)
            continue;
        memset(fresh, '+', sizeof fresh);
        if (write(fifo, fresh, (size_t)tokens) < 0) {
            /* There are none then, and every client has one of its own. */
        }
    }
    flock(fifo, LOCK_SH);
}

/* Opens the fifo and keeps it open until this process ends. */
static bool open_fifo(const char *path, int tokens)
{
    if (mkfifo(path, 0600) != 0 && errno != EEXIST)
        return false;
    int fifo = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct stat state;
    if (fifo < 0 || fstat(fifo, &state) != 0 || !S_ISFIFO(state.st_mode))
        return false;
    fill(fifo, tokens);
    return true;
}

void tokens_offer(char **command)
{
    size_t length = 0;
    const char *flags = getenv("MAKEFLAGS"), *places = getenv("STOKER_PLACES");
    const char *server = flags ? find_server(flags, &length) : NULL;
    const char *folder = getenv("STOKER_LOCKS"), *run = getenv("STOKER_RUN");
    if (!getenv("STOKER_JOBS"))
        return; /* make has the user's number itself */
    int tokens = places ? atoi(places) - 1 : 0; /* each command has one of its own */
    char path[PATH_MAX], *changed = NULL;
    if (!server || !folder || !run || tokens < 1 || tokens > MOST_TOKENS ||
        starts_build_tool(command))
        return;
    snprintf(path, sizeof path, "%s/tokens-%s-%d", folder, run, tokens);
    if (!open_fifo(path, tokens))
        return;
    char ends[PATH_MAX + sizeof "fifo:"];
    if (strncmp(server, "fifo:", strlen("fifo:")) == 0) {
        snprintf(ends, sizeof ends, "fifo:%s", path);
    } else { /* of a make before 4.4, whose clients need not know the other form */
        int reading = open(path, O_RDWR), writing = open(path, O_RDWR);
        if (reading < 0 || writing < 0)
            return;
        snprintf(ends, sizeof ends, "%d,%d", reading, writing);
    }
    if (asprintf(&changed, "%.*s%s%s", (int)(server - flags), flags, ends, server + length) >= 0)
        setenv("MAKEFLAGS", changed, 1);
}
