/* The wire protocol: one message is one line, its fields separated by tabs. Independent of
 * the meaning of the messages. The tests compare the Python side with the same bytes. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes that would end a field or a line, and the letters that replace them after a backslash */
static const char ESCAPED[] = {'\\', '\t', '\n', '\r', '\0'};
static const char LETTERS[] = {'\\', 't', 'n', 'r', '0'};

static void append_byte(struct line *line, char byte)
{
    if (line->length == line->capacity) {
        size_t capacity = line->capacity ? 2 * line->capacity : 4096;
        char *bytes = realloc(line->bytes, capacity);
        if (!bytes) {
            line->failed = true;
            return;
        }
        line->bytes = bytes;
        line->capacity = capacity;
    }
    line->bytes[line->length++] = byte;
}

static void append_escaped(struct line *line, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const char *found = memchr(ESCAPED, bytes[i], sizeof ESCAPED);
        if (found)
            append_byte(line, '\\');
        append_byte(line, found ? LETTERS[found - ESCAPED] : bytes[i]);
    }
}

static void begin_line(struct line *line, const char *word)
{
    append_escaped(line, word, strlen(word));
}

static void add_bytes(struct line *line, const char *bytes, size_t length)
{
    append_byte(line, '\t');
    append_escaped(line, bytes, length);
}

static void add_text(struct line *line, const char *text)
{
    add_bytes(line, text, strlen(text));
}

static void add_number(struct line *line, uint64_t number)
{
    char digits[24];
    add_bytes(line, digits, (size_t)snprintf(digits, sizeof digits, "%" PRIu64, number));
}

static void end_line(struct line *line)
{
    append_byte(line, '\n');
}

static const char *const KINDS[] = {
    [COMPILE] = "compile", [ONCE] = "once", [CUSTOM] = "custom", [REMOTE] = "remote",
};

void line_ask(struct line *line, const char *run, const char *folder, unsigned cpus,
              const char *within, char **command)
{
    begin_line(line, "ask");
    add_number(line, PROTOCOL_VERSION);
    add_text(line, run);
    add_text(line, folder);
    add_number(line, cpus);
    add_text(line, within);
    add_text(line, KINDS[command_kind]);
    add_text(line, command_reason);
    for (char **word = command; *word; word++)
        add_text(line, *word);
    end_line(line);
}

void line_lease(struct line *line, uint64_t family, int64_t asked_us, int64_t started_us)
{
    begin_line(line, "lease");
    add_number(line, family);
    add_number(line, (uint64_t)asked_us);
    add_number(line, (uint64_t)started_us);
    end_line(line);
}

void line_started(struct line *line)
{
    begin_line(line, "started");
    end_line(line);
}

void line_memory(struct line *line, uint64_t current, uint64_t peak, bool idle)
{
    begin_line(line, "memory");
    add_number(line, current);
    add_number(line, peak);
    add_number(line, idle);
    end_line(line);
}

static void add_account(struct line *line, const struct account *account)
{
    add_number(line, account->wall_us);
    add_number(line, account->cpu_us);
    add_number(line, account->peak_bytes);
    add_number(line, account->byte_seconds);
}

void line_done(struct line *line, int status, const struct account *account, const char *tail,
               size_t tail_length)
{
    begin_line(line, "done");
    add_number(line, WIFEXITED(status) ? (uint64_t)WEXITSTATUS(status) : 0);
    add_number(line, WIFSIGNALED(status) ? (uint64_t)WTERMSIG(status) : 0);
    add_account(line, account);
    add_bytes(line, tail, status == 0 ? 0 : tail_length);
    end_line(line);
}

void line_killed(struct line *line, const struct account *account)
{
    begin_line(line, "killed");
    add_account(line, account);
    end_line(line);
}

void line_ping(struct line *line)
{
    begin_line(line, "ping");
    end_line(line);
}

/* A backslash before anything else stands for itself. */
static size_t unescape(char *bytes, size_t length)
{
    size_t written = 0;
    for (size_t i = 0; i < length; i++) {
        const char *letter = NULL;
        if (bytes[i] == '\\' && i + 1 < length)
            letter = memchr(LETTERS, bytes[i + 1], sizeof LETTERS);
        if (letter)
            i++;
        bytes[written++] = letter ? ESCAPED[letter - LETTERS] : bytes[i];
    }
    return written;
}

/* Splits a line into its fields, in place. */
static void decode(struct message *message, char *line, size_t length)
{
    message->count = 0;
    for (char *end = line + length; line <= end && message->count < FIELDS_MAX;) {
        char *tab = memchr(line, '\t', (size_t)(end - line));
        size_t field = (size_t)((tab ? tab : end) - line);
        message->fields[message->count++] = (struct field){line, unescape(line, field)};
        line += field + 1;
    }
}

bool message_is(const struct message *message, const char *word)
{
    const struct field *first = &message->fields[0];
    return first->length == strlen(word) && memcmp(first->bytes, word, first->length) == 0;
}

bool channel_connect(struct channel *channel, const char *path, int64_t timeout_us)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval timeout = {.tv_sec = timeout_us / 1000000, .tv_usec = timeout_us % 1000000};
    channel->socket = -1;
    channel->length = channel->taken = 0;
    if (strlen(path) >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, path, strlen(path));
    channel->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (channel->socket < 0)
        return false;
    setsockopt(channel->socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    if (connect(channel->socket, (struct sockaddr *)&address, sizeof address) == 0)
        return true;
    int reason = errno;
    channel_close(channel);
    errno = reason;
    return false;
}

void channel_close(struct channel *channel)
{
    if (channel->socket >= 0)
        close(channel->socket);
    channel->socket = -1;
}

static bool send_all(int socket, const char *bytes, size_t length, int flags)
{
    for (size_t sent = 0; sent < length;) {
        ssize_t count = send(socket, bytes + sent, length - sent, MSG_NOSIGNAL | flags);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return false;
        sent += (size_t)count;
    }
    return true;
}

static void clear_line(struct line *line)
{
    line->length = 0;
    line->failed = false;
}

bool channel_send(struct channel *channel, struct line *line, bool wait)
{
    bool sent = channel->socket >= 0 && !line->failed &&
                send_all(channel->socket, line->bytes, line->length, wait ? 0 : MSG_DONTWAIT);
    clear_line(line);
    return sent;
}

bool channel_pass(struct channel *channel, struct line *line, int file)
{
    union {
        char bytes[CMSG_SPACE(sizeof file)];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec content = {line->bytes, line->length};
    struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    bool sent = channel->socket >= 0 && !line->failed &&
                sendmsg(channel->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
    clear_line(line);
    return sent;
}

bool channel_receive(struct channel *channel)
{
    memmove(channel->input, channel->input + channel->taken, channel->length - channel->taken);
    channel->length -= channel->taken;
    channel->taken = 0;
    if (channel->length == sizeof channel->input)
        return false; /* no message is that long */
    ssize_t count = recv(channel->socket, channel->input + channel->length,
                         sizeof channel->input - channel->length, MSG_DONTWAIT);
    if (count < 0)
        return errno == EAGAIN || errno == EINTR;
    channel->length += (size_t)count;
    return count > 0;
}

bool channel_take(struct channel *channel, struct message *message)
{
    char *line = channel->input + channel->taken;
    char *end = memchr(line, '\n', channel->length - channel->taken);
    if (!end)
        return false;
    decode(message, line, (size_t)(end - line));
    channel->taken += (size_t)(end - line) + 1;
    return true;
}

static void print_fields(char *line, size_t length)
{
    struct message message;
    decode(&message, line, length);
    for (size_t i = 0; i < message.count; i++) {
        if (i > 0)
            putchar(' ');
        for (size_t at = 0; at < message.fields[i].length; at++)
            printf("%02x", (unsigned char)message.fields[i].bytes[at]);
    }
    putchar('\n');
}

int protocol_selftest(void)
{
    struct account account = {2000001, 1900000, 1073741824, 536870912};
    char *command[] = {"/usr/bin/g++", "-c", "a b.cc", "-DTAB=\"\t\\\"", "", "-o", "\xff.o", NULL};
    static const char tail[] = "a.cc:1: error:\n\tx\\y\r\n\0.";
    struct line line = {0};
    line_ask(&line, "4711", "/build/caf\xc3\xa9", 0, "12", command);
    line_lease(&line, 4711, 12000000, 0);
    line_started(&line);
    line_memory(&line, 1048576, UINT64_MAX, true);
    line_done(&line, 0, &account, tail, sizeof tail - 1);
    line_done(&line, 1 << 8, &account, tail, sizeof tail - 1);
    line_done(&line, SIGKILL, &account, "", 0);
    line_killed(&line, &account);
    line_ping(&line);
    fwrite(line.bytes, 1, line.length, stdout);
    free(line.bytes);

    char *received = NULL;
    size_t capacity = 0;
    for (ssize_t length; (length = getline(&received, &capacity, stdin)) > 0;)
        print_fields(received, (size_t)length - (received[length - 1] == '\n'));
    free(received);
    return fflush(stdout) == 0 ? 0 : 1;
}
