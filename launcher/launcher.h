/* The parts of stoker's compiler launcher, from the wire upward.
 *
 *   ninja -> launcher -> keeper -> compiler -> ...
 *
 * The launcher asks the governor for a permit, waits, and reports the command's result to ninja. The
 * keeper is a fork of the launcher and the parent of the compiler. If the launcher is killed with
 * SIGKILL, the keeper kills the compiler and all its descendants; if the keeper is killed, the
 * launcher does. Both are subreapers, so no descendant can escape from the surviving one.
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

/* ---- command.c: parsing of compilers' command lines -------------------------------------------*/

/* Returns the command with `name` as its argv[0]; its file is still found by its first word. */
char **command_named(char *name, char **command);

/* The compilers that a custom or remote command starts here ask for permits of their own. A command
 * that is not known to be repeatable (ONCE, CUSTOM) is never killed to be started again, so its output
 * is not buffered and its TMPDIR is that of the build. */
enum kind {
    COMPILE,
    ONCE,   /* a compiler that must not be started twice */
    CUSTOM, /* another command of a build tool; its files are kept */
    REMOTE, /* a distributor, whose compiler runs on another machine */
};

extern enum kind command_kind;
extern const char *command_reason; /* of ONCE: why it must not be started twice */

/* Returns the argv[0] of a command. */
char *command_own_name(char **command);

/* Returns whether an attempt of the command may be killed and started again. */
bool command_repeats(void);

/* Returns a copy of the command with more words behind its first one. Options of the user come later, so
 * they override those words. Returns NULL if memory is short. */
char **command_with(char **command, char *const *words, size_t count);

/* Executes the command. If that fails, exits with 127 or 126, as a shell does. */
_Noreturn void command_execute(char **command);

/* Returns the number of CPUs the command will use: nvcc's --threads (0 means all CPUs), else 1. */
unsigned command_cpus(char **command);

/* An option that names an output. */
struct output_word {
    const char *path; /* NULL: the word is no such option */
    int words;        /* how many it takes with its value */
    bool main;        /* what the command makes, not a list of headers */
};

/* Returns what a word of the command says about outputs. */
struct output_word command_output(char **command, char **word);

/* ---- files.c: the files that the command writes ----------------------------------------------*/

enum { MOST_OUTPUTS = 8 }; /* a command with more must not be repeated */

/* Looks at the files of -o and -MF before an attempt. */
void files_remember(char **command);

/* Removes what a killed attempt has written to them, which may be incomplete. Those that it has not
 * touched stay. If the command is `repeated`, what is left leads to the same files, links and modes as
 * one undisturbed attempt. */
void files_undo(bool repeated);

/* ---- repeat.c: whether a command may be started again -----------------------------------------*/

/* Returns NULL for a command that is known to give the same result if it is killed and started again,
 * else why it is not: "it reads ...". */
const char *command_unrepeatable(char **command);

/* Returns whether the program of a command is a script. */
bool command_is_script(char **command);

/* Returns whether a word of the command is a name of stdin or of the terminal. */
bool command_reads_stdin(char **command);

/* ---- cache.c: caches, distributors and the targets of nvcc (Linux) ---------------------------*/

/* Starts the cache of a compile, if one may see it, or the wrapper that the command names. Otherwise returns the
 * command to govern, without the GPU targets that are left out. `cached`: a cache has seen the command. */
char **cache_start(char **command, bool cached);

/* launcher.c: returns whether the programs that we start have our library, so that they reach us. */
bool has_library(void);

/* ---- protocol.c: one message is one line of fields; bytes in, bytes out ----------------------*/

enum { PROTOCOL_VERSION = 7, FIELDS_MAX = 8, LINE_MAX_BYTES = 1 << 16 };

struct field {
    char *bytes;
    size_t length;
};

/* A message from the governor; its fields point into the channel until the next one is taken. */
struct message {
    struct field fields[FIELDS_MAX];
    size_t count;
};

/* A buffer of messages to the governor. It grows as needed, and sending empties it. `failed` is set
 * when memory for it ran out. */
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

/* `cpus` of a remote command are the jobs that all workers together take, and of a custom one those that the
 * user has given the build tool, 0 if that is unknown. `within` is the id of the custom or remote command
 * that started this one, or 0. */
void line_ask(struct line *line, const char *run, const char *folder, unsigned cpus,
              const char *within, char **command);

/* Goes before `ask`: the family of the command, and when it asked and started by a lease, 0 if it has
 * none. The governor that has made a page knows this word. */
void line_lease(struct line *line, uint64_t family, int64_t asked_us, int64_t started_us);
void line_started(struct line *line);
void line_memory(struct line *line, uint64_t current, uint64_t peak, bool idle);
void line_done(struct line *line, int status, const struct account *account, const char *tail,
               size_t tail_length);
void line_killed(struct line *line, const struct account *account);

/* Asks whether the governor is alive. */
void line_ping(struct line *line);

/* Connects, or returns false and sets errno. Connecting, and later sending with `wait`, fail after `timeout_us`. */
bool channel_connect(struct channel *channel, const char *path, int64_t timeout_us);

/* Sends immediately or, with `wait`, when the governor reads. Returns whether it was sent. */
bool channel_send(struct channel *channel, struct line *line, bool wait);

/* Sends a short line immediately, together with an open file unless that is -1. */
bool channel_pass(struct channel *channel, struct line *line, int file);

/* Reads what has arrived. Returns false if the other side is gone or violates the protocol. */
bool channel_receive(struct channel *channel);

/* Stores the next complete message that was received. Returns false if there is none. */
bool channel_take(struct channel *channel, struct message *message);
void channel_close(struct channel *channel);

bool message_is(const struct message *message, const char *word);

/* Prints our messages with example values, then the fields of each line of stdin in hexadecimal. */
int protocol_selftest(void);

/* ---- output.c: the command's output, buffered until its attempt counts -----------------------*/

enum { TAIL_BYTES = 4096 };

struct output {
    int pipes[2];       /* where the command's stdout and stderr arrive; -1 when closed */
    const char *folder; /* for the file that takes what exceeds the memory buffer */
    int spill;
    off_t spilled;           /* bytes in the spill file */
    size_t used, last;       /* bytes in memory; offset of the last record among them */
    bool passing;            /* buffering failed, so output is written directly */
    int error;               /* why data on stdout could not be written, or 0 */
    size_t tail_length;
    char tail[TAIL_BYTES];   /* the last bytes of both streams */
};

#define NO_OUTPUT {.pipes = {-1, -1}, .spill = -1}

/* Creates the pipes. `ends` receives the write ends for the command's stdout and stderr; they are the
 * same if our own stdout and stderr are the same file, so that the order of the bytes is kept. */
bool output_open(struct output *output, const char *folder, int ends[2]);

/* Reads what has arrived in the pipe of one stream (0 or 1). */
void output_collect(struct output *output, int stream);

/* Reads what is in the pipes now, without waiting for processes that still hold them open. */
void output_drain(struct output *output);

/* Writes what is buffered. If that fails, `error` says why, unless the reader is gone. A stderr that
 * cannot be written is ignored, as compilers do, and so is a stdout that is the same file: a log. */
void output_print(struct output *output);

void output_discard(struct output *output);

/* ---- folder.c: the TMPDIR of one attempt -----------------------------------------------------*/

/* Creates it. `path` has PATH_MAX bytes and is empty if it could not be created. */
void folder_make(char *path, const char *parent);

/* Deletes it with all that is in it. */
void folder_remove(const char *path);

/* Moves or copies what a command left in it to a new folder in `parent`, whose path `kept` receives.
 * Returns false if there is nothing or if that fails. */
bool folder_keep(const char *path, const char *parent, char *kept);

/* ---- tree.c: a process and its descendants (Linux) -------------------------------------------*/

/* Returns the parent of our parent; zero if it is unknown or in another pid namespace. */
pid_t tree_grandparent(void);

/* What the descendants of a process use. */
struct tree_use {
    uint64_t memory; /* RssAnon + RssShmem */
    uint64_t ticks;  /* CPU time, also of the processes that they have waited for */
    bool works;      /* one of them has a CPU, or would use one, or waits for a disk */
};

/* Returns the use of all descendants of `root`, without `root` and without the steps among them, which
 * are measured by their own launchers. `cpu`: also their CPU time. */
struct tree_use tree_use(pid_t root, bool cpu);

/* Returns user plus system time, in microseconds. */
uint64_t tree_cpu_us(const struct rusage *usage);

/* Stop the processes that `tree_use` measures, and continue them. */
void tree_pause(pid_t root);
void tree_resume(pid_t root);

/* Finds a file that a descendant of `root` has mapped and whose path contains `part`. `path` has PATH_MAX
 * bytes. */
bool tree_maps(pid_t root, const char *part, char *path);

/* Kills and reaps all descendants of the calling process, also in other groups and sessions. Gives up
 * those that do not end. SIGCHLD must be blocked. Returns the CPU time they used, in microseconds. */
uint64_t tree_kill(void);

/* ---- attempt.c: one run of the command (Linux) -----------------------------------------------*/

/* Sent by the kernel when our parent dies. */
#define SIGNAL_PARENT_DIED SIGRTMIN

struct attempt {
    char **command;        /* NULL: there is no attempt */
    pid_t keeper;          /* the compiler's parent and the leader of its process group */
    bool leased; /* it runs without the governor's knowledge, so it is short and not paused */
    bool running;
    bool paused;
    bool idle;    /* its processes have used no CPU for a while */
    bool daemons; /* a process it started outlives it */
    int status;   /* as returned by wait */
    int64_t started_us, ended_us;
    int64_t paused_us; /* the part of that time in which it was paused */
    int64_t sampled_us, next_sample_us, interval_us;
    uint64_t memory, peak, cpu_us;
    double byte_us; /* the integral of memory over time */
    uint64_t reported;
    int64_t reported_us;
    uint64_t ticks;    /* the CPU time that its processes had used */
    int64_t looked_us; /* when that was read */
    char folder[PATH_MAX]; /* its TMPDIR; empty if it could not be created */
};

int64_t now_us(void);

/* Starts the command with the given signal mask. Returns false if no process could be created. */
bool attempt_start(struct attempt *attempt, char **command, const char *step, const char *parent,
                   const sigset_t *mask, struct output *output, bool leased);

/* Measures the tree if a sample is due. Returns whether the result should be reported. */
bool attempt_sample(struct attempt *attempt);

/* Stops the command and its descendants, but not the keeper, which must be able to clean up. Memory
 * is still measured; time does not count. Does nothing if no command runs. */
void attempt_pause(struct attempt *attempt);

/* Resumes a paused command. */
void attempt_resume(struct attempt *attempt);

/* Reaps children that exited; clears `running` if the command is among them. */
void attempt_reap(struct attempt *attempt);

/* Kills the whole tree, then removes half-written outputs and temporary files. `repeated`: the command
 * will be started again. */
void attempt_abandon(struct attempt *attempt, bool repeated);

/* Deletes the attempt's folder, unless a daemon that it started is still running. */
void attempt_tidy(struct attempt *attempt);
struct account attempt_account(const struct attempt *attempt);

/* Ends this process with the given wait status: the same exit status or signal. */
_Noreturn void end_as(int status);

/* ---- page.c: leases, taken from shared memory without a message (Linux) ----------------------*/

/* Opens the page beside the governor's socket. Returns false if there is none for us. */
bool page_open(const char *socket);

/* Returns a number that is the same for commands which differ only in the names of their files, or 0 if
 * the words do not tell. */
uint64_t page_family(char **command);

/* Returns whether commands of the family may take places now. */
bool page_offers(uint64_t family);

/* Takes a place. Returns false if there is none, after it has waited for one that becomes free. */
bool page_take(void);

/* Wakes all that wait, because the places were withdrawn. */
void page_leave(void);

/* Gives our place back, if we have one. */
void page_release(void);

/* Leaves messages about a command that has ended where the governor looks now and then. Returns whether
 * there was space for them. */
bool page_report(const char *socket, const struct line *line);

/* ---- tokens.c: the job server of what a command starts (Linux) --------------------------------*/

/* Gives the command tokens of the number that the user gave make, in place of those of make's wide window.
 * A make inside it keeps the latter: what it starts asks. */
void tokens_offer(char **command);

/* ---- step.c: the life of a step, from the question to the report (Linux) ----------------------*/

/* Runs the command under the governor and exits with its status. Returns only if the command must run
 * without the launcher. */
void step_run(char **command);

#endif
