/* The files of programs; see programs.h. */
#define _GNU_SOURCE
#include "programs.h"

#include "compilers.h"
#include "text.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEEPEST_LINK = 16 };

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Reads the first bytes of a file and returns their number: 0 if it may not be read, less for a
 * folder. */
static long read_start(const char *path, void *start, size_t size)
{
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return 0;
    long length = syscall(SYS_read, file, start, size);
    syscall(SYS_close, file);
    return length;
}

enum program examine(const char *path)
{
    ElfW(Ehdr) header;
    if (syscall(SYS_faccessat, AT_FDCWD, path, X_OK) < 0)
        return ABSENT;
    long size = read_start(path, &header, sizeof header);
    if (size < 0)
        return ABSENT;
    if (size == 0)
        return HIDDEN;
    if (size < SELFMAG || !starts_with((char *)header.e_ident, ELFMAG))
        return SCRIPT;
    if (size < (long)sizeof header)
        return NATIVE;
    bool same = header.e_ident[EI_CLASS] == __ehdr_start.e_ident[EI_CLASS] &&
                header.e_machine == __ehdr_start.e_machine;
    return same ? NATIVE : FOREIGN;
}

bool is_dynamic(const char *path)
{
    union {
        ElfW(Ehdr) header;
        char bytes[4096];
    } start;
    long size = read_start(path, &start, sizeof start);
    if (size < (long)sizeof start.header || !starts_with((char *)start.header.e_ident, ELFMAG))
        return true; /* a script */
    for (size_t number = 0; number < start.header.e_phnum; number++) {
        size_t at = start.header.e_phoff + number * sizeof(ElfW(Phdr));
        if (at + sizeof(ElfW(Phdr)) > (size_t)size)
            return true;
        if (((ElfW(Phdr) *)(start.bytes + at))->p_type == PT_INTERP)
            return true;
    }
    return false;
}

bool is_file(const char *path)
{
    struct stat status;
    return syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0) == 0 && S_ISREG(status.st_mode);
}

bool is_source_with_files(const char *path)
{
    enum { OVERLAP = 16 }; /* no directive is longer */
    char block[4096];
    if (!is_file(path))
        return false; /* opening a pipe would be noticed by its writer */
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    bool found = false;
    long length = 0, size = 0;
    while (file >= 0 && !found &&
           (size = syscall(SYS_read, file, block + length, sizeof block - 1 - (size_t)length)) > 0) {
        length += size;
        block[length] = '\0';
        found = has_hidden_files(block, (size_t)length);
        long kept = length < OVERLAP ? length : OVERLAP;
        for (long at = 0; at < kept; at++)
            block[at] = block[length - kept + at];
        length = kept;
    }
    if (file >= 0)
        syscall(SYS_close, file);
    return found;
}

/* Joins folder and name. False: that is too long. */
static bool join(char *path, const char *folder, size_t length, const char *name)
{
    size_t rest = text_length(name);
    if (length == 0)
        folder = ".", length = 1;
    if (length + rest + 2 > PATH_MAX)
        return false;
    copy(path, folder, length);
    path[length] = '/';
    copy(path + length + 1, name, rest);
    return true;
}

static bool has_slash(const char *file)
{
    while (*file && *file != '/')
        file++;
    return *file == '/';
}

bool folder_holds(const char *folder, size_t length, const char *name)
{
    char path[PATH_MAX];
    return join(path, folder, length, name) && syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

/* An entry of a folder, as the kernel writes it. */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* True if a folder has another one in it, also through a link. */
static bool has_folders(const char *path)
{
    enum { FOLDER = 4, LINK = 10, UNKNOWN = 0 };
    _Alignas(struct entry) char entries[4096];
    struct stat status;
    int folder = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return false;
    bool found = false;
    for (long size; !found && (size = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;)
        for (long at = 0; !found && at < size;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            bool inner = !same_text(entry->name, ".") && !same_text(entry->name, "..");
            found = inner && (entry->type == FOLDER ||
                              ((entry->type == LINK || entry->type == UNKNOWN) &&
                               syscall(SYS_newfstatat, folder, entry->name, &status, 0) == 0 &&
                               S_ISDIR(status.st_mode)));
            at += entry->size;
        }
    syscall(SYS_close, folder);
    return found;
}

bool leads_to_programs(const char *prefix, size_t length)
{
    static const char *const PROGRAMS[] = {
        "as", "cc1", "cc1plus", "cc1obj", "cc1objplus", "specs", NULL,
    };
    char path[PATH_MAX];
    for (const char *const *name = PROGRAMS; *name; name++) {
        if (folder_holds(prefix, length, *name))
            return true;
        if (length + text_length(*name) >= PATH_MAX)
            return true;
        copy(path, prefix, length);
        copy(path + length, *name, text_length(*name));
        if (syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0)
            return true;
    }
    copy(path, prefix, length);
    return has_folders(path);
}

enum program search_folders(const char *folders, const char *name, char *path)
{
    for (bool more = true; more;) {
        size_t length = 0;
        while (folders[length] && folders[length] != ':')
            length++;
        if (join(path, folders, length, name)) {
            enum program found = examine(path);
            if (found != ABSENT)
                return found;
        }
        more = folders[length] == ':';
        folders += length + 1;
    }
    return ABSENT;
}

enum program locate(const char *file, bool search, char *path)
{
    size_t length = text_length(file);
    if (length == 0 || length >= PATH_MAX)
        return ABSENT;
    if (has_slash(file)) {
        copy(path, file, length);
        return examine(path);
    }
    const char *folders = search ? variable(environ, "PATH") : "";
    return search_folders(folders ? folders : "/bin:/usr/bin", file, path);
}

static long read_link(const char *path, char *target)
{
    long length = syscall(SYS_readlinkat, AT_FDCWD, path, target, (size_t)PATH_MAX - 1);
    if (length > 0)
        target[length] = '\0';
    return length;
}

/* Replaces a path by what it links to. False: it is no link, or the result is too long. */
static bool follow(char *path)
{
    char target[PATH_MAX];
    if (read_link(path, target) <= 0)
        return false;
    size_t folder = target[0] == '/' ? 0 : (size_t)(program_name(path) - path);
    if (folder + text_length(target) >= PATH_MAX)
        return false;
    copy(path + folder, target, text_length(target));
    return true;
}

void follow_links(char *path)
{
    for (int depth = 0; depth < DEEPEST_LINK && follow(path); depth++)
        ;
}

static bool leads_to(const char *path, bool is_wanted(const char *name))
{
    char at[PATH_MAX];
    copy(at, path, text_length(path));
    bool found = is_wanted(program_name(at));
    for (int depth = 0; depth < DEEPEST_LINK && !found && follow(at); depth++)
        found = is_wanted(program_name(at));
    return found;
}

bool leads_to_wrapper(const char *path)
{
    return leads_to(path, is_compiler_wrapper);
}

bool leads_to_ccache(const char *path)
{
    return leads_to(path, is_ccache);
}

bool real_path(const char *path, char *real)
{
    static const char OPEN[] = "/proc/self/fd/";
    char link[sizeof OPEN + 12];
    long file = syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC);
    if (file < 0)
        return false;
    char digits[12], *digit = digits + sizeof digits - 1;
    *digit = '\0';
    for (long rest = file; digit == digits + sizeof digits - 1 || rest > 0; rest /= 10)
        *--digit = (char)('0' + rest % 10);
    copy(link, OPEN, sizeof OPEN - 1);
    copy(link + sizeof OPEN - 1, digit, text_length(digit));
    bool known = read_link(link, real) > 0;
    syscall(SYS_close, file);
    return known;
}

bool lies_below(const char *path, const char *folder)
{
    char at[PATH_MAX], real[PATH_MAX];
    copy(at, ".", 1); /* with an initializer, clang calls memset */
    size_t length = (size_t)(program_name(path) - path), above = text_length(folder);
    if (length >= PATH_MAX)
        return false;
    if (length > 0)
        copy(at, path, length);
    return real_path(at, real) && starts_with(real, folder) && (real[above] == '/' || !real[above]);
}

const char *calling_program(char *path)
{
    return read_link("/proc/self/exe", path) > 0 ? program_name(path) : "";
}
