/* Execution of reference code: one loop over the lanes a step. */
#include <math.h>
#include <string.h>

#include "reference/code.h"
#include "reference/half.h"

static inline uint32_t u(int32_t x) {
    return (uint32_t)x;
}

static inline int32_t wrap(uint32_t x) {
    return (int32_t)x;
}

/* Rounds toward minus infinity; a zero divisor gives 0, -2^31 / -1 wraps. */
static inline int32_t floor_div(int32_t x, int32_t y) {
    if (y == 0)
        return 0;
    int64_t quotient = (int64_t)x / y;
    if ((int64_t)x % y != 0 && (x < 0) != (y < 0))
        quotient--;
    return wrap((uint32_t)quotient);
}

static inline int32_t floor_mod(int32_t x, int32_t y) {
    if (y == 0)
        return 0;
    int64_t rest = (int64_t)x % y;
    return (int32_t)(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
}

/* x - y*floor(x/y), each step rounded to f32; statements keep compilers that
 * contract within an expression from fusing the last two. */
static inline float float_mod(float x, float y) {
    float whole = floorf(x / y);
    float product = y * whole;
    return x - product;
}

/* Toward zero, saturating; NaN gives 0. */
static inline int32_t saturate(double x) {
    if (!(x > -2147483648.0))
        return x != x ? 0 : INT32_MIN;
    return x >= 2147483647.0 ? INT32_MAX : (int32_t)x;
}

/* The elements at `offsets`, as the value type of the tensor; 0 for lanes
 * outside. */
static void load(union ref_slot *out, const struct tensor *tensor,
                 const char *data, const int64_t *offsets, const bool *inside) {
    for (int l = 0; l < REF_LANES; l++) {
        if (!inside[l]) {
            out->i[l] = 0; /* the bits of 0.0f as well */
            continue;
        }
        const char *element =
            data + offsets[l] * (int64_t)scalar_type_size(tensor->type);
        uint16_t half;
        switch (tensor->type) {
        case SCALAR_BOOL:
            out->i[l] = *element != 0;
            break;
        case SCALAR_I32:
        case SCALAR_F32:
            memcpy(&out->i[l], element, 4);
            break;
        case SCALAR_F16:
        case SCALAR_BF16:
            memcpy(&half, element, 2);
            out->f[l] = float_of_half(half, tensor->type);
            break;
        case SCALAR_TYPE_COUNT:
            break;
        }
    }
}

/* tensor[indices] in every lane.  Each axis is checked by itself: an index
 * beyond its extent is outside even where the address would not be. */
static void read_tensor(const struct ref_step *step, union ref_slot *slots,
                        const struct ref_call *call) {
    const struct ref_tensor *tensor = &call->tensors[step->tensor->number];
    int64_t offsets[REF_LANES] = {0};
    bool inside[REF_LANES];
    memset(inside, tensor->data != NULL, sizeof inside);
    for (int axis = 0; axis < step->tensor->rank; axis++) {
        const int32_t *index = slots[step->indices[axis]].i;
        int64_t extent = tensor->extents[axis], stride = tensor->strides[axis];
        for (int l = 0; l < REF_LANES; l++) {
            inside[l] = inside[l] && index[l] >= 0 && index[l] < extent;
            offsets[l] += inside[l] ? index[l] * stride : 0;
        }
    }
    load(&slots[step->out], step->tensor, tensor->data, offsets, inside);
}

#define SELECT_CASE(op, field)                                   \
    case op:                                                     \
        for (int l = 0; l < REF_LANES; l++)                      \
            out->field[l] = a->i[l] ? b->field[l] : c->field[l]; \
        break;

#define OP(id, from, to, value)                                    \
    case REF_##id:                                                 \
        for (int l = 0; l < REF_LANES; l++) {                      \
            __typeof__(a->from[0]) x = a->from[l], y = b->from[l]; \
            (void)y;                                               \
            out->to[l] = (value);                                  \
        }                                                          \
        break;

static void execute_step(const struct ref_step *step, union ref_slot *slots,
                         const struct ref_call *call) {
    /* The result's slot is never an operand's (reference/compile.c, emit). */
    union ref_slot *restrict out = &slots[step->out];
    const union ref_slot *a = &slots[step->in[0]], *b = &slots[step->in[1]];
    const union ref_slot *c = &slots[step->in[2]];
    switch (step->op) {
        REF_OPS(OP)
        SELECT_CASE(REF_SELECT_I, i)
        SELECT_CASE(REF_SELECT_F, f)
        SELECT_CASE(REF_SELECT_D, d)
    case REF_READ:
        read_tensor(step, slots, call);
        break;
    }
}

#undef OP
#undef SELECT_CASE

void ref_execute(const ref_steps *steps, union ref_slot *slots,
                 const struct ref_call *call) {
    for (size_t i = 0; i < steps->count; i++)
        execute_step(&steps->data[i], slots, call);
}

/* One 32-bit value in all lanes; the same bits serve .i and .f. */
static void fill(union ref_slot *slot, int32_t value) {
    for (int l = 0; l < REF_LANES; l++)
        slot->i[l] = value;
}

union ref_slot *ref_slots_create(struct arena *arena,
                                 const struct ref_program *program,
                                 const struct ref_call *call) {
    union ref_slot *slots =
        ARENA_NEW_ARRAY(arena, union ref_slot, program->slot_count);
    for (int size = 0; size < SIZE_COUNT; size++)
        fill(&slots[REF_SLOT_SIZES + size], (int32_t)call->sizes[size]);
    for (size_t i = 0; i < program->presets.count; i++) {
        const struct ref_preset *preset = &program->presets.data[i];
        uint32_t bits =
            preset->param ? call->params[preset->param->number] : preset->bits;
        fill(&slots[preset->slot], wrap(bits));
    }
    return slots;
}

void ref_begin_row(const struct ref_program *program,
                   const struct ref_call *call, union ref_slot *slots,
                   int64_t b, int64_t h, int64_t q) {
    int64_t group = call->sizes[SIZE_HEADS] / call->sizes[SIZE_KV_HEADS];
    fill(&slots[INDEX_B], (int32_t)b);
    fill(&slots[INDEX_H], (int32_t)h);
    fill(&slots[INDEX_H_KV], (int32_t)(h / group));
    fill(&slots[INDEX_Q], (int32_t)q);
    ref_execute(&program->row, slots, call);
}

const int32_t *ref_mask_block(const struct ref_program *program,
                              const struct ref_call *call,
                              union ref_slot *slots, int64_t first,
                              int64_t count) {
    static const int32_t all[2 * REF_LANES] = {
#define ROW8 1, 1, 1, 1, 1, 1, 1, 1
        ROW8, ROW8, ROW8, ROW8, ROW8, ROW8, ROW8, ROW8,
#undef ROW8
    };
    for (int64_t l = 0; l < REF_LANES; l++)
        slots[INDEX_KV].i[l] = (int32_t)(first + (l < count ? l : count - 1));
    ref_execute(&program->mask, slots, call);
    if (!program->has_mask)
        return all + (REF_LANES - (count < REF_LANES ? count : REF_LANES));
    /* The mask's slot may belong to the row program: mark the missing lanes in
     * a copy that lives in the slot of s, which is not in use yet. */
    int32_t *kept = slots[REF_SLOT_S].i;
    for (int64_t l = 0; l < REF_LANES; l++)
        kept[l] = l < count && slots[program->mask_slot].i[l];
    return kept;
}
