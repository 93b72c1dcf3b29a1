/* The public functions that need neither the compiler nor a GPU: version, what
 * a program says of itself. */
#include "runtime/program.h"

const char *attn_version(void) {
    return ATTN_VERSION;
}

void attn_program_destroy(struct attn_program *program) {
    rt_program_release(program);
}

const char *attn_program_name(const struct attn_program *program) {
    return program->info.name;
}

const char *attn_program_target(const struct attn_program *program) {
    return program->info.target;
}

enum attn_type attn_program_dtype(const struct attn_program *program) {
    return program->info.dtype == SCALAR_F16 ? ATTN_F16 : ATTN_BF16;
}

int attn_program_head_dim_qk(const struct attn_program *program) {
    return program->info.head_dim_qk;
}

int attn_program_head_dim_v(const struct attn_program *program) {
    return program->info.head_dim_v;
}

int attn_program_group(const struct attn_program *program) {
    return program->info.group;
}

size_t attn_program_tensor_count(const struct attn_program *program) {
    return program->info.tensor_count;
}

const struct attn_tensor_info *
attn_program_tensor(const struct attn_program *program, size_t index) {
    return index < program->info.tensor_count ? &program->tensors[index] : NULL;
}

size_t attn_program_param_count(const struct attn_program *program) {
    return program->info.scalar_count;
}

const struct attn_param_info *
attn_program_param(const struct attn_program *program, size_t index) {
    return index < program->info.scalar_count ? &program->params[index] : NULL;
}

size_t attn_program_entry_count(const struct attn_program *program) {
    return program->info.entry_count;
}

const struct attn_entry_info *
attn_program_entry(const struct attn_program *program, size_t index) {
    return index < program->info.entry_count ? &program->entries[index] : NULL;
}

const char *attn_program_workspace(const struct attn_program *program) {
    return program->workspace;
}

const char *attn_program_ptx(const struct attn_program *program) {
    return program->ptx;
}
const char *attn_program_warnings(const struct attn_program *program) {
    return program->warnings;
}
const char *attn_program_json(const struct attn_program *program) {
    return program->json;
}
bool attn_program_from_cache(const struct attn_program *program) {
    return program->from_cache;
}
