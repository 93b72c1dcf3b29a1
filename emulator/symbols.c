/* Names, registers and constants of a PTX text being parsed.
 *
 * Scopes nest as PTX blocks do; a bucket keeps the newest symbol first, so that
 * inner names hide outer ones.  Constants are stored once, broadcast to all 32
 * lanes, so that an executor reads them as it reads registers.
 */
#include "emulator/parse.h"

#include <string.h>

static unsigned hash_name(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash % PARSE_BUCKETS;
}

void emu_parse_scope_open(struct parser *parser) {
    if (parser->depth + 1 >=
        (int)(sizeof parser->scope / sizeof parser->scope[0]))
        emu_parse_fail(parser, "blocks nested deeper than 62");
    parser->scope[++parser->depth] = NULL;
}

void emu_parse_scope_close(struct parser *parser) {
    for (struct symbol *s = parser->scope[parser->depth]; s;
         s = s->scope_next) {
        struct symbol **link = &parser->buckets[hash_name(s->name)];
        while (*link != s)
            link = &(*link)->bucket_next;
        *link = s->bucket_next;
    }
    parser->depth--;
}

struct symbol *emu_parse_lookup(const struct parser *parser, const char *name) {
    struct symbol *s = parser->buckets[hash_name(name)];
    while (s && strcmp(s->name, name) != 0)
        s = s->bucket_next;
    return s;
}

struct symbol *emu_parse_declare(struct parser *parser, const char *name,
                                 enum symbol_kind kind) {
    unsigned bucket = hash_name(name);
    struct symbol *outer = emu_parse_lookup(parser, name);
    for (struct symbol *s = parser->scope[parser->depth]; outer && s;
         s = s->scope_next)
        if (s == outer)
            emu_parse_fail(parser, "'%s' is declared twice", name);
    struct symbol *symbol = ARENA_NEW(parser->arena, struct symbol);
    *symbol = (struct symbol){.name = name,
                              .kind = kind,
                              .bucket_next = parser->buckets[bucket],
                              .scope_next = parser->scope[parser->depth]};
    parser->buckets[bucket] = symbol;
    parser->scope[parser->depth] = symbol;
    return symbol;
}

int32_t emu_parse_add_register(struct parser *parser, const char *name,
                               enum emu_type type) {
    struct emu_module *module = parser->module;
    unsigned bytes = emu_type_bytes(type);
    int32_t size = bytes == 0   ? 4
                   : bytes <= 4 ? 128
                                : (int32_t)bytes * EMU_LANES;
    if (module->registers.count >= 1u << 18)
        emu_parse_fail(parser, "more than %u registers", 1u << 18);
    if (size > 4) /* lane arrays start at cache lines */
        module->register_bytes = (module->register_bytes + 63) & ~63;
    vec_push(parser->arena, &module->registers,
             (struct emu_register){.name = name,
                                   .type = (uint8_t)type,
                                   .offset = module->register_bytes});
    module->register_bytes += size;
    return (int32_t)module->registers.count - 1;
}

/* All lanes get the value, in the width of the register that it stands for. */
static void write_constant(struct emu_module *module, size_t offset,
                           uint64_t value, uint8_t width) {
    uint8_t *at = module->constants + offset;
    uint32_t low = (uint32_t)value;
    uint64_t zero = 0;
    for (int lane = 0; lane < EMU_LANES; lane++) {
        if (width == 8 || width == 16)
            memcpy(at + lane * 8, &value, 8);
        else
            memcpy(at + lane * 4, &low, 4);
        if (width == 16)
            memcpy(at + 256 + lane * 8, &zero, 8);
    }
}

/* Constants move when the pool grows: only offsets are kept. */
static int32_t add_constant(struct parser *parser, uint64_t value,
                            uint8_t width) {
    struct emu_module *module = parser->module;
    size_t size = width == 16  ? 512
                  : width == 8 ? 256
                               : 128,
           offset = module->constant_bytes;
    if (offset + size > module->constant_capacity) {
        size_t larger =
            module->constant_capacity ? module->constant_capacity * 2 : 65536;
        module->constants = arena_grow(parser->arena, module->constants,
                                       module->constant_capacity, larger);
        module->constant_capacity = larger;
    }
    module->constant_bytes += size;
    write_constant(module, offset, value, width);
    return ~(int32_t)offset;
}

int32_t emu_parse_constant(struct parser *parser, uint64_t value,
                           uint8_t width) {
    uint64_t hash = (value ^ width) * 0x9e3779b97f4a7c15u;
    uint32_t slot = (uint32_t)(hash >> 40) % PARSE_CONSTANT_SLOTS;
    while (parser->constants[slot].used &&
           (parser->constants[slot].value != value ||
            parser->constants[slot].width != width))
        slot = (slot + 1) % PARSE_CONSTANT_SLOTS;
    if (parser->constants[slot].used)
        return parser->constants[slot].offset;
    int32_t offset = add_constant(parser, value, width);
    if (parser->constants_used < PARSE_CONSTANT_SLOTS / 2) {
        parser->constants[slot] =
            (struct constant_slot){true, width, value, offset};
        parser->constants_used++;
    }
    return offset;
}

enum emu_type emu_parse_type(const char *word) {
    static const char *const names[EMU_TYPE_COUNT] = {
#define T(name, class, bytes) [EMU_TYPE_##name] = "." #name,
#include "emulator/types.def"
#undef T
    };
    for (int i = 1; i < EMU_TYPE_COUNT; i++)
        if (strcmp(names[i], word) == 0)
            return (enum emu_type)i;
    return EMU_TYPE_NONE;
}

int32_t emu_parse_label(struct parser *parser, const char *name) {
    struct symbol **bucket =
        &parser->label_buckets[hash_name(name) % PARSE_LABEL_BUCKETS];
    for (struct symbol *s = *bucket; s; s = s->bucket_next)
        if (strcmp(s->name, name) == 0)
            return s->index;
    struct symbol *symbol = ARENA_NEW(parser->arena, struct symbol);
    *symbol = (struct symbol){.name = name,
                              .kind = SYMBOL_LABEL,
                              .bucket_next = *bucket,
                              .index = (int32_t)parser->labels.count};
    *bucket = symbol;
    vec_push(parser->arena, &parser->labels, -1);
    vec_push(parser->arena, &parser->label_names, name);
    return symbol->index;
}

void emu_parse_labels_reset(struct parser *parser) {
    memset(parser->label_buckets, 0, sizeof parser->label_buckets);
    parser->labels.count = 0;
    parser->label_names.count = 0;
}

void emu_parse_patch_shared(struct parser *parser, uint32_t dynamic_base) {
    for (size_t i = 0; i < parser->patches.count; i++) {
        const struct shared_patch *p = &parser->patches.data[i];
        write_constant(parser->module, (size_t)~p->offset,
                       dynamic_base + p->addend, p->width);
    }
}

int32_t emu_parse_shared_constant(struct parser *parser, uint64_t addend,
                                  uint8_t width) {
    int32_t offset = add_constant(parser, addend, width);
    vec_push(parser->arena, &parser->patches,
             (struct shared_patch){offset, width, addend});
    return offset;
}
