/* The disk cache.  An entry is a fixed header and the payload:
 *
 *     magic "attnc01\n" | key 16 | payload bytes 8 |
 *     XXH3-128 of the payload 16 | payload
 *
 * Numbers are little-endian as on every machine with a CUDA device.  There is
 * no index and no lock: the file system's rename is the only
 * synchronisation. */
#include "runtime/cache.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/toolkit.h"

struct header {
    char magic[8];
    struct rt_key key;
    uint64_t size;
    struct rt_key check;
};

static const char magic[8] = {'a', 't', 't', 'n', 'c', '0', '1', '\n'};
static const uint64_t max_payload = (uint64_t)1 << 30;

struct rt_key rt_key_of(const void *data, size_t size) {
    XXH128_hash_t hash = XXH3_128bits(data, size);
    return (struct rt_key){hash.high64, hash.low64};
}

bool rt_key_equal(struct rt_key a, struct rt_key b) {
    return a.high == b.high && a.low == b.low;
}

bool rt_cache_folder(const char *chosen, struct strbuf *out_folder) {
    const char *own = getenv("ATTN_CACHE_DIR");
    const char *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (chosen != NULL && chosen[0] != '\0')
        strbuf_append(out_folder, chosen);
    else if (own != NULL && own[0] != '\0')
        strbuf_append(out_folder, own);
    else if (xdg != NULL &&
             xdg[0] == '/') /* relative ones are to be ignored, says XDG */
        strbuf_printf(out_folder, "%s/attn", xdg);
    else if (home != NULL && home[0] != '\0')
        strbuf_printf(out_folder, "%s/.cache/attn", home);
    else
        return false;
    return true;
}

void rt_cache_path(const char *folder, struct rt_key key,
                   struct strbuf *out_path) {
    strbuf_printf(out_path, "%s/%016" PRIx64 "%016" PRIx64 ".attn", folder,
                  key.high, key.low);
}

/* ---- Reading ----------------------------------------------------------- */

/* read(2) until all is there. */
static bool read_all(int file, void *data, size_t size) {
    char *at = data;
    while (size > 0) {
        ssize_t count = read(file, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        at += count;
        size -= (size_t)count;
    }
    return true;
}

/* Reads and checks an open entry. */
static bool read_entry(int file, struct rt_key key,
                       struct strbuf *out_payload) {
    struct header header;
    struct stat info;
    if (fstat(file, &info) != 0 || !read_all(file, &header, sizeof header) ||
        memcmp(header.magic, magic, sizeof magic) != 0 ||
        !rt_key_equal(header.key, key) || header.size > max_payload ||
        (uint64_t)info.st_size != sizeof header + header.size)
        return false;
    char *payload = malloc(header.size + 1);
    bool good = payload != NULL && read_all(file, payload, header.size) &&
                rt_key_equal(rt_key_of(payload, header.size), header.check);
    if (good)
        strbuf_append_bytes(out_payload, payload, header.size);
    free(payload);
    return good;
}

bool rt_cache_read(const char *folder, struct rt_key key,
                   struct strbuf *out_payload) {
    struct strbuf path;
    strbuf_init(&path, NULL);
    rt_cache_path(folder, key, &path);
    bool good = false;
    int file = open(path.data, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file >= 0) {
        good = read_entry(file, key, out_payload);
        close(file);
        if (!good)
            unlink(path.data);
    }
    strbuf_destroy(&path);
    return good;
}

/* ---- Writing ----------------------------------------------------------- */

static bool write_all(int file, const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        ssize_t count = write(file, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        at += count;
        size -= (size_t)count;
    }
    return true;
}

/* mkdir -p */
static bool make_folders(const char *folder) {
    struct strbuf path;
    strbuf_init(&path, NULL);
    strbuf_append(&path, folder);
    bool good = true;
    for (size_t i = 1; good && i <= path.length; i++) {
        if (path.data[i] != '/' && path.data[i] != '\0')
            continue;
        char kept = path.data[i];
        path.data[i] = '\0';
        good = mkdir(path.data, 0700) == 0 || errno == EEXIST;
        path.data[i] = kept;
    }
    strbuf_destroy(&path);
    return good;
}

/* The new file is not synced: after a crash of the machine it may hold
 * anything, which the hash finds. */
static struct attn_status *write_renamed(const char *folder,
                                         const struct strbuf *target,
                                         const struct header *header,
                                         const void *payload) {
    struct strbuf temporary;
    strbuf_init(&temporary, NULL);
    strbuf_printf(&temporary, "%s/.new-XXXXXX", folder);
    struct attn_status *status = NULL;
    int file = mkostemp(temporary.data, O_CLOEXEC);
    if (file < 0) {
        status = RT_FAIL(ATTN_IO, "cannot write into the cache '%s': %s",
                         folder, strerror(errno));
    } else {
        bool good = write_all(file, header, sizeof *header) &&
                    write_all(file, payload, header->size);
        good = close(file) == 0 && good;
        if (!good || rename(temporary.data, target->data) != 0) {
            status = RT_FAIL(ATTN_IO, "cannot write the cache entry '%s': %s",
                             target->data, strerror(errno));
            unlink(temporary.data);
        }
    }
    strbuf_destroy(&temporary);
    return status;
}

struct attn_status *rt_cache_write(const char *folder, struct rt_key key,
                                   const void *payload, size_t size) {
    struct header header = {
        .key = key, .size = size, .check = rt_key_of(payload, size)};
    memcpy(header.magic, magic, sizeof magic);
    if (size > max_payload)
        return RT_FAIL(ATTN_IO, "a cache entry of %zu bytes is too large",
                       size);
    if (!make_folders(folder))
        return RT_FAIL(ATTN_IO, "cannot create the cache folder '%s': %s",
                       folder, strerror(errno));
    struct strbuf target;
    strbuf_init(&target, NULL);
    rt_cache_path(folder, key, &target);
    struct attn_status *status =
        write_renamed(folder, &target, &header, payload);
    strbuf_destroy(&target);
    return status;
}

/* ---- Parts ------------------------------------------------------------- */

void rt_parts_write(const struct rt_part *parts, size_t count,
                    struct strbuf *out_payload) {
    uint64_t number = count;
    strbuf_append_bytes(out_payload, &number, sizeof number);
    for (size_t i = 0; i < count; i++) {
        number = parts[i].size;
        strbuf_append_bytes(out_payload, &number, sizeof number);
    }
    for (size_t i = 0; i < count; i++) {
        strbuf_append_bytes(out_payload, parts[i].data, parts[i].size);
        strbuf_append_bytes(out_payload, "", 1);
    }
}

static uint64_t number_at(const char *payload, size_t index) {
    uint64_t number = 0;
    memcpy(&number, payload + index * sizeof number, sizeof number);
    return number;
}

bool rt_parts_read(const char *payload, size_t size, struct rt_part *out_parts,
                   size_t capacity, size_t *out_count) {
    uint64_t count = size >= 8 ? number_at(payload, 0) : UINT64_MAX;
    if (count > capacity || (count + 1) * 8 > size)
        return false;
    size_t offset = (size_t)(count + 1) * 8;
    for (size_t i = 0; i < count; i++) {
        uint64_t length = number_at(payload, i + 1);
        if (length >= size - offset || payload[offset + length] != '\0')
            return false;
        out_parts[i] = (struct rt_part){payload + offset, (size_t)length};
        offset += (size_t)length + 1;
    }
    *out_count = (size_t)count;
    return offset == size;
}

/* ---- This build -------------------------------------------------------- */

struct build_search {
    uintptr_t inside; /* an address of this library or program */
    struct strbuf *out;
    bool found;
};

/* True when a loaded segment of the object covers the address. */
static bool object_contains(const struct dl_phdr_info *object,
                            uintptr_t address) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        if (object->dlpi_phdr[i].p_type == PT_LOAD && address >= start &&
            address - start < object->dlpi_phdr[i].p_memsz)
            return true;
    }
    return false;
}

/* Prints the NT_GNU_BUILD_ID note in [at, end) as hexadecimal. */
static bool print_build_id(const char *at, const char *end,
                           struct strbuf *out) {
    while (at + sizeof(ElfW(Nhdr)) <= end) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof note);
        const char *name = at + sizeof note;
        const char *value = name + ((note.n_namesz + 3u) & ~3u);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(name, "GNU", 4) == 0) {
            for (unsigned i = 0; i < note.n_descsz; i++)
                strbuf_printf(out, "%02x", (unsigned char)value[i]);
            return true;
        }
        at = value + ((note.n_descsz + 3u) & ~3u);
    }
    return false;
}

static int visit_object(struct dl_phdr_info *object, size_t size, void *data) {
    struct build_search *search = data;
    (void)size;
    if (!object_contains(object, search->inside))
        return 0;
    for (int i = 0; i < object->dlpi_phnum && !search->found; i++) {
        const char *notes =
            (const char *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        if (object->dlpi_phdr[i].p_type == PT_NOTE)
            search->found = print_build_id(
                notes, notes + object->dlpi_phdr[i].p_memsz, search->out);
    }
    return 1;
}

void rt_build_identity(struct strbuf *out) {
    struct build_search search = {(uintptr_t)&magic, out, false};
    strbuf_printf(out, "attn %s ", attn_version());
    dl_iterate_phdr(visit_object, &search);
    Dl_info file = {0};
    if (!search.found && dladdr(&magic, &file) != 0 && file.dli_fname != NULL)
        rt_file_identity(file.dli_fname, out);
    strbuf_append(out, "\n");
}
