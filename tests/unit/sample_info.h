/* A kernel_info like the back end's, for tests of what reads it: two entries (a
 * block summary and the attention), a captured tensor, three parameters, a
 * workspace. */
#ifndef ATTN_TESTS_SAMPLE_INFO_H
#define ATTN_TESTS_SAMPLE_INFO_H

#include "support/arena.h"
#include "support/kernel_info.h"

enum { SAMPLE_SUMMARY, SAMPLE_ATTEND, SAMPLE_ENTRIES };
enum { SAMPLE_SECOND = SAMPLE_ENTRIES, SAMPLE_SECOND_Q_LEN = 64 };
enum { SAMPLE_DOC = KERNEL_TENSOR_CAPTURED, SAMPLE_UNUSED, SAMPLE_TENSORS };
enum { SAMPLE_WINDOW, SAMPLE_CAP, SAMPLE_FLAG, SAMPLE_SCALARS };

/* bf16, head_dim 64, any group; doc: i32[batch, kv_len + window / 16],
 * unused: f32[heads]; window: i32 = 64, cap: f32, flag: bool = true.
 * Workspace: 256 bytes of counters and 8 bytes a key block of 64. */
struct kernel_info *sample_info(struct arena *arena);

/* The same for sm_90a with a third entry, "attend$tile_64x64", which takes the
 * place of "attend" for q_len up to SAMPLE_SECOND_Q_LEN; both are
 * conditional. */
struct kernel_info *sample_info_with_second(struct arena *arena);

#endif
