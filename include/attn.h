/* attn: compile a spec of one attention variant and launch it on a CUDA stream.
 *
 *     attn_context  options of the cache, and the programs it remembers
 *     attn_program  a compiled spec: PTX, kernel facts, cubins (no GPU needed)
 *     attn_kernel   a program loaded into one CUDA context
 *     attn_plan     a kernel with arguments already checked    (optional)
 *
 * Every function that can fail returns NULL or an `attn_status` that the
 * caller destroys.  Nothing prints, nothing exits.  All functions may be called
 * from several threads; a launch neither allocates nor synchronises, so it can
 * be captured in a CUDA graph.  One call is different, the first that runs a
 * conditional kernel (attn_entry_info): it assembles and loads that kernel.
 * attn_workspace_size or attn_plan_create with the sizes to come has it done
 * beforehand.  docs/runtime.md has the whole story.
 *
 * Tensors are DLPack's (dlpack/dlpack.h), streams are the CUDA driver's
 * CUstream; neither cuda.h nor a GPU is needed to build against this header. */
#ifndef ATTN_H
#define ATTN_H

#include <dlpack/dlpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ATTN_VERSION
#define ATTN_VERSION "0.1.0"
#endif

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

/* The version of the library that runs, which may differ from ATTN_VERSION. */
ATTN_API const char *attn_version(void);

/* ---- Status ------------------------------------------------------------ */

enum attn_code {
    ATTN_OK = 0,
    ATTN_INVALID_SPEC,     /* the .attn text has errors; the text holds them, with carets */
    ATTN_INVALID_ARGUMENT, /* a tensor, parameter, size or option does not fit */
    ATTN_UNAVAILABLE,      /* this machine lacks a library, a tool or a GPU; the text says which */
    ATTN_TOOLKIT,          /* ptxas, nvJitLink or NVRTC refused the code; the text holds its log */
    ATTN_CUDA,             /* the CUDA driver failed; the text holds its error name */
    ATTN_IO,               /* a file could not be read or written */
    ATTN_OUT_OF_MEMORY,
};

struct attn_status; /* NULL is success */

/* ATTN_OK for NULL. */
ATTN_API enum attn_code attn_status_code(const struct attn_status *status);
/* Human text without a final newline, "ok" for NULL.  Lives as long as `status`. */
ATTN_API const char *attn_status_text(const struct attn_status *status);
/* Where in the library it was raised, "runtime/launch.c:120". */
ATTN_API const char *attn_status_origin(const struct attn_status *status);
/* Ends a status; NULL is fine. */
ATTN_API void attn_status_destroy(struct attn_status *status);

/* ---- Context ----------------------------------------------------------- */

enum attn_cache_mode {
    ATTN_CACHE_DISK = 0, /* memory and disk */
    ATTN_CACHE_MEMORY,
    ATTN_CACHE_OFF,
};

struct attn_context_options {
    enum attn_cache_mode cache;
    const char *cache_dir; /* NULL: $ATTN_CACHE_DIR, $XDG_CACHE_HOME/attn, ~/.cache/attn */
};

struct attn_context;

/* Creates a context; `options` may be NULL.  Several may exist. */
ATTN_API struct attn_status *attn_context_create(const struct attn_context_options *options,
                                                 struct attn_context **out_context);
/* Ends the context and its memory cache; programs that the caller holds live on. */
ATTN_API void attn_context_destroy(struct attn_context *context);

/* ---- Compile ----------------------------------------------------------- */

struct attn_source {
    const char *text; /* NULL: read the file `path`; need not end in NUL */
    size_t text_size;
    const char *path; /* file, or the name that messages and imports use; NULL: "spec.attn" */
};

/* Zero is the default of every field.  Strings are copied. */
struct attn_compile_options {
    const char *entry;    /* name of the attention; NULL: the only one of the file */
    const char *target;   /* "sm_80"; NULL: the spec's, else the current device's, else
                             "sm_90a" */
    const char *schedule; /* as in `schedule { }`, "tile 128, 64; stages 2"; NULL: the planner's */
    const char *const *include_dirs;
    size_t include_count;
};

struct attn_program;

/* Compiles a spec to PTX, or finds it in the cache.  Same input, same bytes.
 * `options` may be NULL.  Errors of the spec: ATTN_INVALID_SPEC. */
ATTN_API struct attn_status *attn_compile(struct attn_context *context,
                                          const struct attn_source *source,
                                          const struct attn_compile_options *options,
                                          struct attn_program **out_program);
/* The text of the module after a stage: "attn", a pass's name, or "ptx" (the names
 * of `attnc --emit=`).  The caller frees it with attn_text_destroy. */
ATTN_API struct attn_status *attn_emit(struct attn_context *context,
                                       const struct attn_source *source,
                                       const struct attn_compile_options *options,
                                       const char *stage, char **out_text);
/* Ends a text of attn_emit; NULL is fine. */
ATTN_API void attn_text_destroy(char *text);
/* Ends the caller's hold; kernels loaded from the program live on. */
ATTN_API void attn_program_destroy(struct attn_program *program);

/* ---- Inspect: borrowed, valid while the program lives ------------------- */

enum attn_type { ATTN_BOOL, ATTN_I32, ATTN_F32, ATTN_F16, ATTN_BF16 };

/* A tensor of the call.  The first five are q, k, v, o, lse. */
struct attn_tensor_info {
    const char *name;
    enum attn_type type;
    int rank;
    bool used;              /* false: declared in the spec but never read, need not be given */
    const char *extents[8]; /* C expressions of batch heads kv_heads q_len kv_len and parameters */
};

struct attn_param_info {
    const char *name;
    enum attn_type type; /* ATTN_BOOL, ATTN_I32 or ATTN_F32 */
    bool used;
    bool has_default;
    double default_value;
};

/* One kernel of the program; they are launched in order. */
struct attn_entry_info {
    const char *name;
    int threads;
    uint32_t shared_bytes;
    const char *grid; /* C expression, 1-D; 0 CTAs: not launched */
    bool conditional; /* runs for some sizes only, for the others another one
                         has its place; attn_kernel_load leaves it to the
                         first call that runs it */
    bool programmatic; /* waits for the grids before it itself, and is launched
                          with programmatic stream serialization */
};

/* Name of the attention in the spec. */
ATTN_API const char *attn_program_name(const struct attn_program *program);
/* "sm_80": what the PTX was written for. */
ATTN_API const char *attn_program_target(const struct attn_program *program);
/* Of q, k, v and o: ATTN_F16 or ATTN_BF16. */
ATTN_API enum attn_type attn_program_dtype(const struct attn_program *program);
/* Last extent of q and k. */
ATTN_API int attn_program_head_dim_qk(const struct attn_program *program);
/* Last extent of v and o. */
ATTN_API int attn_program_head_dim_v(const struct attn_program *program);
/* Query heads per KV head, 0 for any. */
ATTN_API int attn_program_group(const struct attn_program *program);
/* The five fixed tensors and the captured ones. */
ATTN_API size_t attn_program_tensor_count(const struct attn_program *program);
/* NULL when `index` is out of range, as below. */
ATTN_API const struct attn_tensor_info *attn_program_tensor(const struct attn_program *program,
                                                            size_t index);
/* Scalar parameters, in the order of the spec; an index out of range gives NULL. */
ATTN_API size_t attn_program_param_count(const struct attn_program *program);
ATTN_API const struct attn_param_info *attn_program_param(const struct attn_program *program,
                                                          size_t index);
/* Kernels, in launch order; an index out of range gives NULL. */
ATTN_API size_t attn_program_entry_count(const struct attn_program *program);
ATTN_API const struct attn_entry_info *attn_program_entry(const struct attn_program *program,
                                                          size_t index);
/* C expression for the bytes of workspace, "0" when none is needed. */
ATTN_API const char *attn_program_workspace(const struct attn_program *program);
/* The annotated PTX text, ending in NUL. */
ATTN_API const char *attn_program_ptx(const struct attn_program *program);
/* Warnings of the compiler, "" when there were none. */
ATTN_API const char *attn_program_warnings(const struct attn_program *program);
/* All of the above but the PTX, as one JSON object. */
ATTN_API const char *attn_program_json(const struct attn_program *program);
/* True when the program came from memory or disk without running the compiler. */
ATTN_API bool attn_program_from_cache(const struct attn_program *program);
/* The cubin for `arch` ("sm_90"; NULL: the program's target) with all kernels,
 * made on first use.  Valid while the program lives.  ATTN_UNAVAILABLE without
 * nvJitLink and ptxas. */
ATTN_API struct attn_status *attn_program_cubin(struct attn_program *program, const char *arch,
                                                const void **out_data, size_t *out_size);

/* ---- Load -------------------------------------------------------------- */

struct attn_kernel;

/* Loads the program into the calling thread's current CUDA context: all of it
 * but the conditional kernels.  The first attn_workspace_size, attn_plan_create
 * or attn_launch whose sizes run one assembles and loads it, from any thread,
 * also while a stream is captured.  If that fails the call returns why, the
 * kernel stays as it was, and a later call tries again. */
ATTN_API struct attn_status *attn_kernel_load(struct attn_program *program,
                                              struct attn_kernel **out_kernel);
/* The same for the primary context of a device (the one that the CUDA runtime API
 * and PyTorch use), which is retained until the kernel is destroyed. */
ATTN_API struct attn_status *attn_kernel_load_device(struct attn_program *program, int device,
                                                     struct attn_kernel **out_kernel);
/* Unloads; launches must have finished.  NULL is fine. */
ATTN_API void attn_kernel_destroy(struct attn_kernel *kernel);

/* ---- Launch ------------------------------------------------------------ */

struct CUstream_st; /* CUstream is `struct CUstream_st *`; NULL is the default stream */

/* A captured tensor by its name in the spec. */
struct attn_tensor_arg {
    const char *name;
    const DLTensor *tensor;
};

/* A `param` by its name in the spec; `type` says which value counts.  An ATTN_I32
 * is accepted for an f32 parameter if f32 holds it exactly, nothing else converts. */
struct attn_param_arg {
    const char *name;
    enum attn_type type;
    union {
        int32_t i32;
        float f32;
        bool boolean;
    } value;
};

/* Arguments of one call, all borrowed for its duration.
 *   q [batch, heads, q_len, head_dim]       k [batch, kv_heads, kv_len, head_dim]
 *   v [batch, kv_heads, kv_len, head_dim_v] o [batch, heads, q_len, head_dim_v]
 *   lse f32 [batch, heads, q_len], or NULL when it is not wanted
 * The axis order is this; the memory order is the strides' (a [batch, len, heads, dim]
 * tensor is passed with its axes permuted).  The last axis has stride 1, rows start at
 * multiples of 16 bytes.  o and lse must not overlap anything that is read. */
struct attn_args {
    const DLTensor *q, *k, *v, *o, *lse;
    const struct attn_tensor_arg *tensors;
    size_t tensor_count;
    const struct attn_param_arg *params;
    size_t param_count;
    void *workspace; /* device memory, 256-byte aligned; NULL when none is needed */
    size_t workspace_bytes;
};

/* Bytes of workspace that a launch with these shapes and parameters needs.  The
 * tensors are checked like in a launch, but data pointers may be NULL.  Loads
 * what the launch will run. */
ATTN_API struct attn_status *attn_workspace_size(const struct attn_kernel *kernel,
                                                 const struct attn_args *args, size_t *out_bytes);
/* Puts a workspace into its first state, on the stream (a memset; may be captured).
 * Needed once for fresh memory and again when the shapes change. */
ATTN_API struct attn_status *attn_workspace_clear(const struct attn_kernel *kernel,
                                                  const struct attn_args *args,
                                                  struct CUstream_st *stream);
/* Checks every argument, loads a conditional kernel that runs for the first
 * time, then launches.  Concurrent launches need a workspace each. */
ATTN_API struct attn_status *attn_launch(const struct attn_kernel *kernel,
                                         const struct attn_args *args,
                                         struct CUstream_st *stream);

struct attn_plan;

/* Checks once and keeps the packed arguments (addresses and workspace included)
 * for launches that repeat; loads what they run.  The kernel must outlive the
 * plan. */
ATTN_API struct attn_status *attn_plan_create(const struct attn_kernel *kernel,
                                              const struct attn_args *args,
                                              struct attn_plan **out_plan);
/* Launches what the plan holds, without looking at any argument again; never
 * loads. */
ATTN_API struct attn_status *attn_plan_launch(const struct attn_plan *plan,
                                              struct CUstream_st *stream);
/* Ends a plan; its launches may still be running.  NULL is fine. */
ATTN_API void attn_plan_destroy(struct attn_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
