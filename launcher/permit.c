/* Asking the governor, and waiting for a permit. A lease needs no question. If the governor is lost,
 * waiting steps take turns. */
#define _GNU_SOURCE
#include "step.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Returns how many CPUs the command uses; of a job that is no compile, the number of jobs that the user has
 * given the build tool, and of a distributor, the jobs that its workers take. Those are 0 if they are
 * unknown. */
static unsigned wanted_places(void)
{
    if (command_kind == CUSTOM || command_kind == REMOTE)
        return (unsigned)atoi(setting(command_kind == CUSTOM ? "STOKER_PLACES" : "STOKER_SLOTS", "0"));
    return command_cpus(step.command);
}

void line_question(void)
{
    char folder[PATH_MAX];
    if (step.family)
        line_lease(&step.line, step.family, step.asked_us,
                   step.attempt.command ? step.attempt.started_us : 0);
    line_ask(&step.line, setting("STOKER_RUN", "0"), getcwd(folder, sizeof folder) ? folder : "",
             wanted_places(), setting("STOKER_CUSTOM", "0"), step.command);
}

void ask(void)
{
    step.asked = true;
    int seconds = atoi(setting("STOKER_GOVERNOR_TIMEOUT", "0"));
    step.timeout_us = INT64_C(1000000) * (seconds > 0 ? seconds : TIMEOUT_S);
    if (!channel_connect(&step.governor, setting("STOKER_SOCKET", ""),
                         MOST_TIMEOUTS * step.timeout_us)) {
        step.refused = errno == EACCES;
        return;
    }
    line_question();
    if (!channel_send(&step.governor, &step.line, true))
        channel_close(&step.governor);
    governor_lives();
}

static int open_lock(const char *folder, int number)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/cpu%d", folder, number);
    return length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

/* Unblocks signals while it waits, so that they end this process: no command is running yet. */
static void lock_and_wait(int lock)
{
    sigset_t ours, waiting = step.inherited;
    sigaddset(&waiting, SIGNAL_PARENT_DIED);
    sigprocmask(SIG_SETMASK, &waiting, &ours);
    flock(lock, LOCK_EX);
    sigprocmask(SIG_SETMASK, &ours, NULL);
}

/* Waits for one of the lock files, one per CPU, which limit parallel steps without a governor. The
 * lock is held until the launcher and its keeper exit. Returns false if there are no locks. */
static bool wait_for_turn(void)
{
    const char *folder = setting("STOKER_LOCKS", NULL);
    if (strcmp(setting("STOKER_CUSTOM", ""), "0") == 0)
        return true; /* the command that started us holds a lock and waits for us */
    int count = 0;
    for (int lock; folder && (lock = open_lock(folder, count)) >= 0; count++) {
        if (flock(lock, LOCK_EX | LOCK_NB) == 0)
            return true;
        close(lock);
    }
    if (count > 0)
        lock_and_wait(open_lock(folder, getpid() % count));
    return count > 0;
}

/* Counts this command as ungoverned in the file that `stoker run` has created; the run reports the
 * number when it exits. */
static void note_ungoverned(void)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/ungoverned-%s", setting("STOKER_LOCKS", ""),
                          setting("STOKER_RUN", "0"));
    int file = length < (int)sizeof path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    if (write(file, ".", 1) < 0) {
        /* It is not counted. Other parts report a full disk. */
    }
    close(file);
}

void keep_complaint(void)
{
    const struct field *text = &step.heard.fields[1];
    step.complaint = step.heard.count > 1 ? strndup(text->bytes, text->length) : NULL;
    if (!step.complaint)
        step.complaint = "stoker gave up this step";
}

static void keep_id(void)
{
    const struct field *id = &step.heard.fields[1];
    int length = step.heard.count > 1 ? (int)id->length : 0;
    snprintf(step.id, sizeof step.id, "%.*s", length, id->bytes);
}

/* Adds the words of the permit to the command. They change what the command costs and not its result, so
 * they are left out if memory is short. */
static void keep_words(void)
{
    size_t count = 0;
    if (step.permitted != step.command)
        free(step.permitted);
    step.permitted = NULL;
    for (size_t i = 0; i < FIELDS_MAX; i++) {
        free(step.words[i]);
        step.words[i] = NULL;
    }
    for (size_t i = 2; i < step.heard.count && command_kind == COMPILE; i++) {
        const struct field *field = &step.heard.fields[i];
        if (!(step.words[count] = strndup(field->bytes, field->length)))
            break;
        count++;
    }
    if (count > 0)
        step.permitted = command_with(step.command, step.words, count);
    if (!step.permitted)
        step.permitted = step.command;
}

/* Asks the governor that replaces a lost one. Returns false if there is none. */
static bool ask_again(void)
{
    if (step.run < 0 || ++step.losses > RETURNS)
        return false;
    for (int64_t until_us = now_us() + RETURN_US; now_us() < until_us;) {
        next_event(now_us() + LOOK_US);
        ask();
        if (step.governor.socket >= 0)
            return true;
    }
    return false;
}

/* Takes a lease as soon as there is one. Returns false if our family gets none now. */
static bool take_lease(void)
{
    bool waited = false;
    while (!step.adopted && page_offers(step.family)) {
        if (page_take()) {
            strcpy(step.id, "lease");
            return step.leased = true;
        }
        waited = true;
        next_event(now_us()); /* signals, and the end of the run */
    }
    if (waited)
        page_leave();
    return false;
}

void adopt(void)
{
    step.leased = false;
    step.adopted = true;
    ask();
}

bool wait_for_permit(void)
{
    if (step.governor.socket < 0 && take_lease())
        return true;
    if (!step.asked)
        ask();
    bool lost = step.governor.socket < 0 && !ask_again();
    while (!lost) {
        enum event event = next_event(0);
        if (event == MESSAGE && heard("run")) {
            keep_id();
            keep_words();
            return true;
        }
        if (event == MESSAGE && heard("fail")) {
            keep_complaint();
            finish_step();
        }
        if (event == MESSAGE && heard("lease")) {
            channel_close(&step.governor);
            if (!page_offers(step.family))
                step.family = 0; /* our page is that of a governor before this one, or too late */
            else if (take_lease())
                return true;
            ask();
        }
        lost = (step.governor.socket < 0 && !ask_again()) || (event == MESSAGE && heard("wrong_version"));
    }
    channel_close(&step.governor);
    strcpy(step.id, "0"); /* the id of a step without a governor */
    step.permitted = step.command;
    note_ungoverned();
    return wait_for_turn();
}
