/* A compiled spec: PTX, kernel facts, and the cubins made from it so far.
 *
 * A program is built from a payload (parts, see cache.h), whether that was just
 * compiled or read from the disk: one way in, checked once.  Programs are
 * counted references, shared by the context's memory cache, the callers and
 * loaded kernels. */
#ifndef ATTN_RUNTIME_PROGRAM_H
#define ATTN_RUNTIME_PROGRAM_H

#include <pthread.h>

#include "runtime/cache.h"
#include "runtime/jit.h"
#include "support/arena.h"
#include "support/kernel_info.h"

/* A set of a program's kernels: all, those that every call runs, or one of the
 * others, which is the number of its entry. */
typedef int rt_kernels;
enum { RT_KERNELS_ALL = -1, RT_KERNELS_ALWAYS = -2 };

/* Whether the set has entry `index`. */
static inline bool rt_kernels_have(rt_kernels kernels,
                                   const struct kernel_info *info,
                                   size_t index) {
    if (kernels == RT_KERNELS_ALWAYS)
        return !info->entries[index].conditional;
    return kernels == RT_KERNELS_ALL || kernels == (rt_kernels)index;
}

/* Number of kernels that not every call runs. */
static inline size_t rt_conditional_count(const struct kernel_info *info) {
    size_t count = 0;
    for (size_t i = 0; i < info->entry_count; i++)
        count += info->entries[i].conditional;
    return count;
}

/* A cubin for one architecture. */
struct rt_cubin {
    char arch[16];
    rt_kernels kernels; /* that it holds */
    void *data; /* owned, malloc */
    size_t size;
    struct rt_cubin *next;
};

struct attn_program {
    int references; /* atomic */
    struct rt_key key;
    char *cache_folder; /* in the arena; NULL: no disk cache */
    bool from_cache;
    struct arena *arena; /* owns all that follows but the cubins */
    struct kernel_info info;
    const char *ptx, *warnings;
    size_t ptx_size;
    struct rt_cuda_source *sources;
    size_t source_count;
    /* The public description. */
    struct attn_tensor_info *tensors;
    struct attn_param_info *params;
    struct attn_entry_info *entries;
    const char *workspace, *json;
    pthread_mutex_t
        lock; /* guards the list of cubins, held while one is made */
    struct rt_cubin *cubins;
};

/* What a compilation yields. */
struct rt_program_parts {
    const struct kernel_info *info;
    const char *ptx;
    size_t ptx_size;
    const char *warnings;
    const struct rt_cuda_source *sources;
    size_t source_count;
};

/* Appends the payload that rt_program_create reads. */
void rt_program_write(const struct rt_program_parts *parts,
                      struct strbuf *out_payload);

/* A program with one reference.  ATTN_IO, saying why, for a payload that is not
 * right. `cache_folder` may be NULL. */
struct attn_status *rt_program_create(const char *payload, size_t size,
                                      struct rt_key key,
                                      const char *cache_folder,
                                      struct attn_program **out_program);

/* A cubin with the kernels `wanted`, made on first use; valid while the program
 * lives.  Its field `kernels` says what it holds: the whole, whatever is
 * wanted, where every call runs all kernels and when the whole is in memory
 * already. */
struct attn_status *rt_program_cubin(struct attn_program *program,
                                     const char *arch, rt_kernels wanted,
                                     const struct rt_cubin **out_cubin);

/* One more reference; returns its argument. */
struct attn_program *rt_program_retain(struct attn_program *program);
/* Same as attn_program_destroy. */
void rt_program_release(struct attn_program *program);

#endif
