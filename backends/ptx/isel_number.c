/* Elements of a run that are equal are computed once.
 *
 * What depends on q - kv only has the same value all along a diagonal: element
 * (i, j) of a lane is 8 i rows and 8 j columns from its first one, so (i, j)
 * and (i + 1, j + 1) agree.  A distance of positions stays "register +
 * constant", and an operation on elements that were seen before gives the
 * result of that time: about half of the conversions, products and loads of a
 * relative bias.
 *
 * Only members whose inputs cannot change inside the run take part: no tiles in
 * registers, which a later member may overwrite in place. */
#include "backends/ptx/isel_number.h"

struct entry {
    struct number_key key;
    struct ptx_operand result;
};

struct numbering {
    struct arena *arena;
    struct entry *entries; /* open hash table; a free entry has no op */
    size_t count, capacity;
};

struct numbering *numbering_create(struct arena *arena) {
    struct numbering *numbers = ARENA_NEW(arena, struct numbering);
    numbers->arena = arena;
    numbers->capacity = 256;
    numbers->entries = ARENA_NEW_ARRAY(arena, struct entry, numbers->capacity);
    return numbers;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_key(const struct number_key *key) {
    uint64_t hash = mix(1, (uint64_t)(uintptr_t)key->op);
    for (int k = 0; k < NUMBER_OPERANDS; k++) {
        hash = mix(hash, (uint64_t)key->in[k].kind << 32 | key->in[k].reg);
        hash = mix(hash, (uint64_t)key->in[k].value);
    }
    return hash;
}

static bool same_operand(const struct ptx_operand *a,
                         const struct ptx_operand *b) {
    return a->kind == b->kind && a->reg == b->reg && a->value == b->value;
}

static bool same_key(const struct number_key *a, const struct number_key *b) {
    if (a->op != b->op)
        return false;
    for (int k = 0; k < NUMBER_OPERANDS; k++)
        if (!same_operand(&a->in[k], &b->in[k]))
            return false;
    return true;
}

/* The entry of a key, or the free one where it belongs. */
static struct entry *find(struct numbering *numbers,
                          const struct number_key *key) {
    for (size_t slot = hash_key(key);; slot++) {
        struct entry *entry = &numbers->entries[slot & (numbers->capacity - 1)];
        if (!entry->key.op || same_key(&entry->key, key))
            return entry;
    }
}

static void grow(struct numbering *numbers) {
    struct numbering old = *numbers;
    numbers->capacity *= 2;
    numbers->entries =
        ARENA_NEW_ARRAY(numbers->arena, struct entry, numbers->capacity);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.entries[i].key.op)
            *find(numbers, &old.entries[i].key) = old.entries[i];
}

struct ptx_operand numbering_find(struct numbering *numbers,
                                  const struct number_key *key) {
    return find(numbers, key)->result;
}

void numbering_add(struct numbering *numbers, const struct number_key *key,
                   struct ptx_operand result) {
    if (2 * (numbers->count + 1) > numbers->capacity)
        grow(numbers);
    struct entry *entry = find(numbers, key);
    numbers->count += !entry->key.op;
    entry->key = *key;
    entry->result = result;
}

/* Keys of the operations that numbering itself makes. */
static const char sum_of_positions, difference_of_positions, limit_of_positions,
    real_position, real_sum;

static struct ptx_operand part(struct ptx_operand operand) {
    return (struct ptx_operand){.kind = operand.reg ? PTX_OPERAND_REG
                                                    : PTX_OPERAND_NONE,
                                .reg = operand.reg};
}

/* x + y or x - y of two registers, made once. */
static struct ptx_operand combine(struct isel *is, struct numbering *numbers,
                                  bool subtract, struct ptx_operand x,
                                  struct ptx_operand y) {
    struct number_key key = {.op = subtract ? &difference_of_positions
                                            : &sum_of_positions,
                             .in = {x, y}};
    struct ptx_operand known = numbering_find(numbers, &key);
    if (ptx_is_reg(known))
        return known;
    known = ptx_def(is->kernel, subtract ? PTX_SUB_S32 : PTX_ADD_S32,
                    "diagonal", x, y);
    numbering_add(numbers, &key, known);
    return known;
}

bool numbering_affine(struct isel *is, struct numbering *numbers, bool subtract,
                      struct ptx_operand x, struct ptx_operand y,
                      struct ptx_operand *out_result) {
    struct ptx_operand base = part(x), other = part(y);
    int64_t constant = x.kind == PTX_OPERAND_REG ? 0 : x.value;
    int64_t change = y.kind == PTX_OPERAND_REG ? 0 : y.value;
    if (!base.reg)
        return false; /* a constant minus something: an ordinary operation */
    constant += subtract ? -change : change;
    if (other.reg)
        base = combine(is, numbers, subtract, base, other);
    *out_result = ptx_address(base, (int32_t)(uint32_t)constant);
    return true;
}

bool numbering_convert(struct isel *is, struct numbering *numbers,
                       struct ptx_operand x, struct ptx_operand *out_result) {
    if (x.kind != PTX_OPERAND_ADDRESS)
        return false;
    struct number_key key = {.op = &real_position, .in = {part(x)}};
    struct ptx_operand base = numbering_find(numbers, &key);
    if (!ptx_is_reg(base)) {
        base = ptx_def(is->kernel, PTX_CVT_F32_S32, "distance", part(x));
        numbering_add(numbers, &key, base);
    }
    if (x.value == 0) {
        *out_result = base;
        return true;
    }
    struct number_key sum = {.op = &real_sum, .in = {base, ptx_imm(x.value)}};
    *out_result = numbering_find(numbers, &sum);
    if (ptx_is_reg(*out_result))
        return true;
    *out_result = ptx_def(is->kernel, PTX_ADD_RN_F32, "distance", base,
                          ptx_f32((float)x.value));
    numbering_add(numbers, &sum, *out_result);
    return true;
}

/* y minus the register of a position or a distance, made once, exact or as far
 * as i32 goes: then all sums that do not wrap compare alike. */
static struct ptx_operand limit(struct isel *is, struct numbering *numbers,
                                struct ptx_operand y, struct ptx_operand base,
                                enum position_range range) {
    struct number_key key = {.op = &limit_of_positions, .in = {y, base}};
    struct ptx_operand known = numbering_find(numbers, &key);
    if (ptx_is_reg(known))
        return known;
    if (range == RANGE_POSITION) { /* -1 is as good as anything below */
        known = ptx_def(is->kernel, PTX_MAX_S32, "limit", y, ptx_imm(-1));
        known = ptx_def(is->kernel, PTX_SUB_S32, "limit", known, base);
    } else {
        known = ptx_def(is->kernel, PTX_SUB_SAT_S32, "limit", y, base);
    }
    numbering_add(numbers, &key, known);
    return known;
}

/* a < b is b > a. */
static int64_t mirrored(int64_t predicate) {
    return predicate == IR_SLT   ? IR_SGT
           : predicate == IR_SLE ? IR_SGE
           : predicate == IR_SGT ? IR_SLT
           : predicate == IR_SGE ? IR_SLE
                                 : predicate;
}

bool numbering_compare(struct isel *is, struct numbering *numbers,
                       const struct compared sides[2], int64_t *predicate,
                       struct ptx_operand out_operands[2]) {
    struct ptx_operand a = part(sides[0].value), b = part(sides[1].value);
    int64_t ca = sides[0].value.value, cb = sides[1].value.value;
    if (sides[0].range == RANGE_POSITION && sides[1].range == RANGE_POSITION) {
        if (!a.reg || !b.reg || a.reg == b.reg)
            return false;
        out_operands[0] = combine(is, numbers, true, a, b);
        out_operands[1] = ptx_imm(cb - ca);
        return true;
    }
    int k = sides[0].range != RANGE_ANY ? 0 : 1;
    struct ptx_operand base = k == 0 ? a : b, y = sides[1 - k].value;
    int64_t constant = k == 0 ? ca : cb;
    if (!base.reg || sides[k].range == RANGE_ANY ||
        sides[1 - k].range != RANGE_ANY)
        return false;
    if (y.kind == PTX_OPERAND_IMM) {
        if (y.value - constant != (int32_t)(y.value - constant))
            return false;
        out_operands[0] = base;
        out_operands[1] = ptx_imm(y.value - constant);
        *predicate = k == 0 ? *predicate : mirrored(*predicate);
        return true;
    }
    out_operands[0] = limit(is, numbers, y, base, sides[k].range);
    out_operands[1] = ptx_imm(constant);
    *predicate = k == 0 ? mirrored(*predicate) : *predicate;
    return true;
}

struct ptx_operand numbering_plain(struct isel *is, struct numbering *numbers,
                                   struct ptx_operand operand) {
    if (operand.kind != PTX_OPERAND_ADDRESS)
        return operand;
    struct ptx_operand base = part(operand);
    if (operand.value == 0)
        return base;
    return combine(is, numbers, false, base, ptx_imm(operand.value));
}
