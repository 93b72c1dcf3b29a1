/* The disk cache: blobs by a 128-bit key, one file each.
 *
 * Written to a temporary file and renamed, so that readers in other processes
 * see all of an entry or none; checked by a hash on reading, and a damaged
 * entry is removed and counts as missing.  Failing to write is no error of a
 * compilation: callers may drop that status. */
#ifndef ATTN_RUNTIME_CACHE_H
#define ATTN_RUNTIME_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"
#include "support/strbuf.h"

struct rt_key {
    uint64_t high, low;
};

/* XXH3's 128-bit hash. */
struct rt_key rt_key_of(const void *data, size_t size);
/* All 128 bits. */
bool rt_key_equal(struct rt_key a, struct rt_key b);

/* The folder to use: `chosen`, else $ATTN_CACHE_DIR, $XDG_CACHE_HOME/attn,
 * ~/.cache/attn.  Appended; false when nothing names one. */
bool rt_cache_folder(const char *chosen, struct strbuf *out_folder);

/* Reads an entry.  False when there is none or it is damaged; then it is
 * removed. */
bool rt_cache_read(const char *folder, struct rt_key key,
                   struct strbuf *out_payload);

/* Writes an entry, creating the folder (mode 0700) where needed. */
struct attn_status *rt_cache_write(const char *folder, struct rt_key key,
                                   const void *payload, size_t size);

/* Appends the path of an entry: FOLDER/0123456789abcdef….attn */
void rt_cache_path(const char *folder, struct rt_key key,
                   struct strbuf *out_path);

/* A payload made of parts, so that one entry can hold PTX and facts
 * together. */
struct rt_part {
    const char *data;
    size_t size;
};
/* Appends the payload: count and sizes, then the parts. */
void rt_parts_write(const struct rt_part *parts, size_t count,
                    struct strbuf *out_payload);
/* Borrowed views into `payload`, each followed by a NUL.  False when the
 * payload is malformed or holds more than `capacity` parts. */
bool rt_parts_read(const char *payload, size_t size, struct rt_part *out_parts,
                   size_t capacity, size_t *out_count);

/* Appends what identifies this build of the library (its link-time build id):
 * two builds that may generate different code never share entries. */
void rt_build_identity(struct strbuf *out);

#endif
