/* The parts of stoker's compiler launcher, from the wire upward.
 *
 *   ninja -> launcher -> keeper -> compiler -> ...
 *
 * The launcher asks the governor, waits, and stands before ninja for the command. The keeper is a
 * fork of it that is the compiler's parent: if the launcher is killed with -9, the keeper ends the
 * compiler and all it started; if the keeper is, the launcher does. Both are subreapers, so no
 * descendant can slip away from the one that lives.
 */
#ifndef STOKER_LAUNCHER_H
#define STOKER_LAUNCHER_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* ---- command.c: what we know of compilers' command lines -------------------------------------*/

/* The command, which will see `name` as its argv[0] and is still found by its first word. */
char **command_named(char *name, char **command);

/* True for a command of a build tool that is not a compiler. It is never started twice, what it prints
 * is not held back, its files are its own business, and what it starts is governed by itself. */
extern bool command_is_custom;

/* Becomes the command. If that is impossible, ends as a shell would: with 127 or 126. */
_Noreturn void command_execute(char **command);

/* The CPUs it will keep busy: what nvcc --threads says, 0 for all there are, else 1. */
unsigned command_cpus(char **command);

/* Deletes the files a killed compiler may have left half written: those of -o and -MF. */
void command_delete_outputs(char **command);

/* ---- protocol.c: one message is one line of fields; bytes in, bytes out ----------------------*/

enum { PROTOCOL_VERSION = 4, FIELDS_MAX = 8, LINE_MAX_BYTES = 1 << 16 };

struct field {
    char *bytes;
    size_t length;
};

/* A message from the governor; its fields point into the channel until the next one is taken. */
struct message {
    struct field fields[FIELDS_MAX];
    size_t count;
};

/* Messages to the governor, each of which is added to those before it; sending empties it. It grows
 * as needed; `failed` when there was no memory for it. */
struct line {
    char *bytes;
    size_t length, capacity;
    bool failed;
};

struct channel {
    int socket; /* -1 once it is lost */
    size_t length, taken;
    char input[LINE_MAX_BYTES];
};

struct account {
    uint64_t wall_us, cpu_us, peak_bytes, byte_seconds;
};

/* `within` is the custom command that has started this one, as the governor knows it, or 0. */
void line_ask(struct line *line, const char *run, const char *folder, unsigned cpus,
              const char *within, char **command);
void line_started(struct line *line);
void line_memory(struct line *line, uint64_t current, uint64_t peak);
void line_done(struct line *line, int status, const struct account *account, const char *tail,
               size_t tail_length);
void line_killed(struct line *line, const struct account *account);

/* Asks whether the governor is alive. */
void line_ping(struct line *line);

/* Connecting and patient sending end without success after `timeout_us`. */
bool channel_connect(struct channel *channel, const char *path, int64_t timeout_us);

/* Sends at once or, with `patient`, when the governor reads. False: it could not be sent. */
bool channel_send(struct channel *channel, struct line *line, bool patient);

/* Sends a short line at once, and with it an open file unless that is -1. */
bool channel_pass(struct channel *channel, struct line *line, int file);

/* Reads what has come. False: the other side is gone or talks nonsense. */
bool channel_receive(struct channel *channel);

/* The next whole message that was received, if there is one. */
bool channel_take(struct channel *channel, struct message *message);
void channel_close(struct channel *channel);

bool message_is(const struct message *message, const char *word);

/* Takes the fields of a line apart, in place. */
void message_decode(struct message *message, char *line, size_t length);

/* Prints our messages with example values, then the fields of each line of stdin in hexadecimal. */
int protocol_selftest(void);

/* ---- output.c: what the command prints, held back until its attempt counts -------------------*/

enum { TAIL_BYTES = 4096 };

struct output {
    int pipes[2];       /* where the command's stdout and stderr arrive; -1 when closed */
    const char *folder; /* where to spill what is too much for memory */
    int spill;
    off_t spilled;           /* bytes in the spill file */
    size_t used, last;       /* bytes held in memory; where the last record among them begins */
    bool passing;            /* nothing could be held any more: output goes straight through */
    char tail[TAIL_BYTES];   /* the last bytes, whatever their stream */
    size_t tail_length;
};

#define NO_OUTPUT {.pipes = {-1, -1}, .spill = -1}

/* Makes the pipes; `ends` are the sides for the command's stdout and stderr, the same file where
 * ours are the same, so that the order is kept to the byte. */
bool output_open(struct output *output, const char *folder, int ends[2]);

/* Takes what has arrived in the pipe of one stream (0 or 1). */
void output_collect(struct output *output, int stream);

/* Takes what is in the pipes now, without waiting for those who still hold them. */
void output_drain(struct output *output);
void output_print(const struct output *output);
void output_discard(struct output *output);

/* ---- tree.c: a process and all it started (Linux) --------------------------------------------*/

/* The parent of our parent; zero when it cannot be known or is in another pid namespace. */
pid_t tree_grandparent(void);

/* RssAnon + RssShmem of all descendants of `root`, without itself. */
uint64_t tree_memory(pid_t root);

/* User and system time, in microseconds. */
uint64_t tree_cpu_us(const struct rusage *usage);

/* Sends a signal to all descendants of `root`, not to itself. */
void tree_signal(pid_t root, int number);

/* Kills the caller's descendants, wherever they hid, and reaps them until there are none.
 * Gives the CPU time they used, in microseconds. */
uint64_t tree_kill(void);

/* ---- attempt.c: one run of the command (Linux) -----------------------------------------------*/

/* Sent by the kernel when our parent dies. */
#define SIGNAL_PARENT_DIED SIGRTMIN

struct attempt {
    char **command;        /* NULL: there is no attempt */
    char folder[PATH_MAX]; /* its TMPDIR; empty when none could be made */
    pid_t keeper;          /* the compiler's parent and the leader of its process group */
    bool running;
    bool paused;
    bool daemons; /* something it started outlives it */
    int status;   /* as from wait */
    int64_t started_us, ended_us;
    int64_t paused_us; /* how long of that it was paused */
    int64_t sampled_us, next_sample_us, interval_us;
    uint64_t memory, peak, cpu_us;
    double byte_us; /* the integral of memory over time */
    uint64_t reported;
    int64_t reported_us;
};

int64_t now_us(void);

/* Starts the command with the signal mask given. False: no process could be made. */
bool attempt_start(struct attempt *attempt, char **command, const char *step, const char *parent,
                   const sigset_t *mask, struct output *output);

/* Measures the tree if it is time. True: the governor should hear of it. */
bool attempt_sample(struct attempt *attempt);

/* Stops the command and all it started, though never the keeper, which must be able to clean up.
 * Memory is still measured, but time does not count. Ignored where no command runs. */
void attempt_pause(struct attempt *attempt);

/* Lets a paused command go on. */
void attempt_resume(struct attempt *attempt);

/* Reaps what has ended; clears `running` when the command is among it. */
void attempt_reap(struct attempt *attempt);

/* Kills the whole tree, then deletes half-written outputs and temporary files. */
void attempt_abandon(struct attempt *attempt);

/* Deletes the attempt's folder, unless a daemon still lives in it. */
void attempt_tidy(struct attempt *attempt);
struct account attempt_account(const struct attempt *attempt);

/* Ends this process as the one of that status ended. */
_Noreturn void end_as(int status);

/* ---- step.c: the conversation with the governor (Linux) --------------------------------------*/

/* Runs the command under the governor and ends with it. Comes back only when the command is to run
 * as if we were not here. */
void step_run(char **command);

#endif
