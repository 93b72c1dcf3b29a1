/* The schedule plan in the IR: see plan.h. */
#include "passes/plan.h"

#include <mlir-c/BuiltinAttributes.h>
#include <string.h>

#include "ir/walk.h"
#include "passes/target_limits.h"
#include "support/vec.h"

/* An f32 attribute that is absent when it is 0. */
static void set_positive(MlirOperation func, const char *name, float value) {
    MlirContext context = mlirOperationGetContext(func);
    if (value > 0)
        ir_set_attr(func, name,
                    mlirFloatAttrDoubleGet(context, ir_type_f32(context),
                                           (double)value));
    else
        ir_remove_attr(func, name);
}

void plan_write(MlirOperation func, const struct schedule_plan *plan) {
    MlirContext context = mlirOperationGetContext(func);
    ir_set_kernel_tile(func, plan->tile_m, plan->tile_n);
    ir_set_kernel_warps(func, plan->warps);
    ir_set_attr(func, "attn.stages", ir_attr_i32(context, plan->stages));
    if (plan->consumers > 0) {
        ir_set_attr(func, "attn.consumers",
                    ir_attr_i32(context, plan->consumers));
        ir_set_attr(func, "attn.q_stages",
                    ir_attr_i32(context, plan->q_stages));
    }
    if (plan->pingpong)
        ir_set_attr(func, "attn.pingpong", ir_attr_unit(context));
    ir_set_attr(
        func, "attn.order",
        ir_attr_string(context, schedule_order(plan)));
    if (plan->second_m > 0)
        ir_set_int_pair(func, "attn.second_tile", plan->second_m,
                        plan->second_n);
    else
        ir_remove_attr(func, "attn.second_tile");
    if (plan->pack_gqa > 0)
        ir_set_attr(func, "attn.packed_heads",
                    ir_attr_i32(context, plan->pack_gqa));
    else
        ir_remove_attr(func, "attn.packed_heads");
    set_positive(func, "attn.rescale_threshold", plan->rescale_threshold);
    set_positive(func, "attn.exp_poly", plan->exp_poly);
    if (plan->q_registers)
        ir_set_attr(func, "attn.q_registers", ir_attr_unit(context));
    else
        ir_remove_attr(func, "attn.q_registers");
}

int plan_packed_heads(MlirOperation func) {
    return (int)ir_int_attr(func, "attn.pack_gqa", 1);
}

const char *plan_heads_size(MlirOperation func) {
    return plan_packed_heads(func) > 1 ? "size:kv_heads" : "size:heads";
}

void plan_set_grid(MlirOperation func, struct arena *arena,
                   const char *const *words, size_t count) {
    VEC(const char *) all = {0};
    size_t when_count = 0;
    const char **when = ir_words(
        arena, mlirOperationGetAttributeByName(func, ir_ref("attn.when")),
        &when_count);
    for (size_t i = 0; i < count; i++)
        vec_push(arena, &all, words[i]);
    for (size_t i = 0; i < when_count; i++)
        vec_push(arena, &all, when[i]);
    if (when_count > 0)
        vec_push(arena, &all, "mul");
    ir_set_kernel_grid(func, all.data, all.count);
}

size_t plan_tile_words(MlirOperation func, struct arena *arena, int tile_m,
                       const char *out_words[PLAN_TILE_WORDS]) {
    int heads = plan_packed_heads(func);
    size_t count = 0;
    out_words[count++] = "q_len";
    if (heads > 1) {
        out_words[count++] = arena_printf(arena, "%d", heads);
        out_words[count++] = "mul";
    }
    out_words[count++] = arena_printf(arena, "%d", tile_m);
    out_words[count++] = "ceildiv";
    out_words[count++] = plan_heads_size(func) + strlen("size:");
    out_words[count++] = "mul";
    out_words[count++] = "batch";
    out_words[count++] = "mul";
    return count;
}

/* Does the module declare CUDA device functions? */
static bool has_externs(MlirOperation module) {
    MlirBlock body = ir_region_block(module, 0);
    MlirOperation op = mlirBlockGetFirstOperation(body);
    for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op))
        if (ir_has_attr(op, "attn.extern"))
            return true;
    return false;
}

struct schedule_problem plan_problem(MlirOperation module,
                                     MlirOperation attention) {
    MlirType q = mlirValueGetType(ir_operand(attention, IR_ATTENTION_Q));
    MlirType v = mlirValueGetType(ir_operand(attention, IR_ATTENTION_V));
    const char *target = ir_module_target(module);
    bool is_bf16 = mlirTypeIsABF16(ir_element_type(q));
    return (struct schedule_problem){
        .target = target ? target : target_limits_get(0)->name,
        .head_dim_qk = (int)ir_extent(q, 3),
        .head_dim_v = (int)ir_extent(v, 3),
        .dtype = is_bf16 ? SCALAR_BF16 : SCALAR_F16,
        .calls_extern = has_externs(module),
        .has_score = ir_has_attr(attention, "score"),
        .has_mask = ir_has_attr(attention, "mask"),
    };
}

static float positive_of(MlirOperation func, const char *name) {
    MlirAttribute value = mlirOperationGetAttributeByName(func, ir_ref(name));
    bool given = !mlirAttributeIsNull(value) && mlirAttributeIsAFloat(value);
    return given ? (float)mlirFloatAttrGetValueDouble(value) : 0;
}

bool plan_read(struct pass_ctx *ctx, MlirOperation module, MlirOperation func,
               MlirOperation attention, struct schedule_plan *out_plan) {
    struct schedule_problem problem = plan_problem(module, attention);
    struct schedule pinned = {0};
    pinned.given[SCHEDULE_TILE] =
        ir_kernel_tile(func, &pinned.tile_m, &pinned.tile_n);
    pinned.stages = (int)ir_int_attr(func, "attn.stages", 0);
    pinned.given[SCHEDULE_STAGES] = pinned.stages != 0;
    pinned.consumers = (int)ir_int_attr(func, "attn.consumers", 0);
    pinned.given[SCHEDULE_CONSUMERS] = pinned.consumers != 0;
    pinned.given[SCHEDULE_OVERLAP] = pinned.consumers != 0;
    pinned.overlap =
        ir_has_attr(func, "attn.pingpong") ? OVERLAP_PINGPONG : OVERLAP_INTRA;
    if (!schedule_resolve(&problem, &pinned, ctx->diags, out_plan))
        return false;
    out_plan->second_m = out_plan->second_n = 0;
    ir_int_pair(func, "attn.second_tile", &out_plan->second_m,
                &out_plan->second_n);
    out_plan->pack_gqa = (int)ir_int_attr(func, "attn.packed_heads", 0);
    /* Without attn.stages nobody has planned yet. */
    if (pinned.given[SCHEDULE_STAGES]) {
        out_plan->rescale_threshold =
            positive_of(func, "attn.rescale_threshold");
        out_plan->exp_poly = positive_of(func, "attn.exp_poly");
    }
    const char *order = ir_text_attr(func, "attn.order");
    out_plan->longest_first = !order || strcmp(order, "linear") != 0;
    if (order)
        out_plan->dynamic = strcmp(order, "dynamic") == 0;
    out_plan->q_stages =
        (int)ir_int_attr(func, "attn.q_stages", out_plan->q_stages);
    int warps = ir_kernel_warps(func);
    if (warps != 0 && out_plan->consumers == 0) {
        out_plan->warps = warps;
        out_plan->q_registers = ir_has_attr(func, "attn.q_registers");
        if (warps < 1 || warps > 32 || out_plan->tile_m % (16 * warps) != 0) {
            diag_error(ctx->diags, SOURCE_NOWHERE,
                       "attn.warps = %d does not divide the %d rows of "
                       "attn.tile by 16",
                       warps, out_plan->tile_m);
            return false;
        }
    }
    plan_write(func, out_plan);
    return true;
}
