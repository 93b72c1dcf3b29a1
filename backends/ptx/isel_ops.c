/* Attributes of upstream operations that MLIR's C API gives as text only. */
#include <mlir-c/BuiltinAttributes.h>
#include <string.h>

#include "backends/ptx/isel.h"

static void append_text(MlirStringRef text, void *buffer) {
    strbuf_append_bytes(buffer, text.data, text.length);
}

/* Text of an attribute ("" when absent) in `buffer`. */
static const char *attribute_text(MlirOperation op, const char *name,
                                  struct strbuf *buffer) {
    MlirAttribute attr = mlirOperationGetAttributeByName(op, ir_ref(name));
    if (!mlirAttributeIsNull(attr))
        mlirAttributePrint(attr, append_text, buffer);
    return strbuf_text(buffer);
}

bool isel_contract(MlirOperation op) {
    struct strbuf buffer;
    strbuf_init(&buffer, NULL);
    const char *text = attribute_text(op, "fastmath", &buffer);
    bool contract = strstr(text, "contract") || strstr(text, "fast>");
    strbuf_destroy(&buffer);
    return contract;
}

const char *isel_reduction_kind(struct isel *is, MlirOperation op) {
    struct strbuf buffer;
    strbuf_init(&buffer, is->arena);
    const char *text = attribute_text(op, "kind", &buffer);
    const char *begin = strchr(text, '<'),
               *end = begin ? strchr(begin, '>') : NULL;
    return end ? arena_strndup(is->arena, begin + 1, (size_t)(end - begin - 1))
               : NULL;
}

bool isel_neutral_reduction(MlirOperation op) {
    struct strbuf buffer;
    strbuf_init(&buffer, NULL);
    const char *kind = attribute_text(op, "kind", &buffer);
    double value = 1;
    bool known = ir_constant_float(ir_operand(op, 1), &value);
    bool neutral =
        known && ((strstr(kind, "add") && value == 0) ||
                  (strstr(kind, "maxnumf") && value == -__builtin_inf()) ||
                  (strstr(kind, "minnumf") && value == __builtin_inf()));
    strbuf_destroy(&buffer);
    return neutral;
}

bool isel_constant(MlirOperation op, struct ptx_operand *out_operand) {
    int64_t integer;
    double number;
    MlirValue value = ir_result(op, 0);
    if (ir_is_float(mlirValueGetType(value))) {
        if (!ir_constant_float(value, &number))
            return false;
        *out_operand = ptx_f32((float)number);
        return true;
    }
    if (!ir_constant_int(value, &integer))
        return false;
    bool boolean = ir_is_bool(mlirValueGetType(value));
    *out_operand = ptx_imm(boolean ? integer != 0 : (int32_t)integer);
    return true;
}
