/* Packing the parameters of a checked call and launching its entries.
 *
 * A frame is one block of memory that holds everything of a call: tensors,
 * scalars, grids and packed kernel parameters.  Its size is known at load, so
 * that a launch can put it on the stack and a plan can keep it. */
#ifndef ATTN_RUNTIME_LAUNCH_H
#define ATTN_RUNTIME_LAUNCH_H

#include "runtime/module.h"

enum {
    RT_FRAME_ALIGN = 64, /* a tensor map's */
    RT_FRAME_MAX = 128 << 10,
    RT_WORKSPACE_ALIGN = 256,
    RT_ENTRY_MAX_BYTES =
        4096, /* parameters of one kernel on every architecture */
};

struct rt_frame {
    struct rt_call call;
    unsigned *grids;        /* CTAs of each entry; 0: not launched */
    void **pointers;        /* one a kernel parameter, entry after entry */
    unsigned char *storage; /* the parameters, each at its alignment */
    size_t storage_bytes;
};

/* Bytes of a frame; ATTN_INVALID_ARGUMENT when the parameters exceed the
 * limits. */
struct attn_status *rt_frame_size(const struct kernel_info *info,
                                  size_t *out_bytes);

/* Lays out a frame in `memory` (kernel->frame_bytes, aligned to
 * RT_FRAME_ALIGN). */
struct rt_frame *rt_frame_init(const struct rt_kernel *kernel, void *memory);

/* Checks all of `args`, the workspace included, and packs; nothing is
 * launched. */
struct attn_status *rt_frame_prepare(const struct rt_kernel *kernel,
                                     const struct attn_args *args,
                                     struct rt_frame *frame);

/* Finds the CTAs of each entry for a call that was checked (rt_workspace_size);
 * rt_frame_prepare does, too. */
struct attn_status *rt_frame_find_grids(const struct rt_kernel *kernel,
                                        struct rt_frame *frame);

/* Whether the call of a frame whose grids are known has work for an entry that
 * is not loaded, and which. */
bool rt_frame_lacks_entry(const struct rt_kernel *kernel,
                          const struct rt_frame *frame, size_t *out_index);

/* Launches a prepared frame that lacks no entry, entry after entry.  Does not
 * change the frame. */
struct attn_status *rt_frame_launch(const struct rt_kernel *kernel,
                                    const struct rt_frame *frame,
                                    struct CUstream_st *stream);

/* Checks `args` without addresses and gives the workspace's size. */
struct attn_status *rt_workspace_size(const struct rt_kernel *kernel,
                                      const struct attn_args *args,
                                      struct rt_frame *frame,
                                      uint64_t *out_bytes,
                                      uint64_t *out_zeroed);

/* Zeroes on the stream what must be zero before the first launch. */
struct attn_status *rt_workspace_clear(const struct rt_kernel *kernel,
                                       const struct attn_args *args,
                                       struct rt_frame *frame,
                                       struct CUstream_st *stream);

#endif
