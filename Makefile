# attn: build, test, install.
#
#   make demo      install what is missing, build, compile and run one spec
#   make test      every test (parts: unit errors cli ir ptx ptxas docs e2e san-replay)
#   make all       build/attnc, build/libattn.so, build/libattn.a
#   make san       the unit tests under AddressSanitizer and UBSan
#   make bless     accept the current output of the golden tests
#   make install PREFIX=/usr/local
#
# Every folder's sources are found by wildcard; objects go to build/obj/, what
# flex, bison and xxd generate to build/gen/.

PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
LLVM ?= /usr/lib/llvm-22
VERSION := 0.1.0

CC ?= gcc
CXX ?= g++
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wswitch-enum -Werror
OPT ?= -O2 -g
SAN ?=
CPPFLAGS += -D_GNU_SOURCE -DATTN_VERSION='"$(VERSION)"' -I. -Iinclude -I$(BUILD)/gen \
	-isystem $(LLVM)/include
CFLAGS += -std=c17 $(OPT) $(WARN) -fPIC -ffunction-sections -fdata-sections -pthread $(SAN)
# Generated scanners and parsers are not ours to restyle.
GEN_CFLAGS = $(CFLAGS) -Wno-error -Wno-shadow -Wno-switch-enum -Wno-unused-function \
	-Wno-sign-compare -Wno-unused-parameter

LIB_DIRS := support frontend ir passes backends/ptx compiler reference emulator runtime
LIB_SRCS := $(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.c))
TOOL_SRCS := $(wildcard tools/*.c)
GEN_SRCS := $(if $(wildcard frontend/lexer.l),$(BUILD)/gen/frontend/lexer.c) \
	$(if $(wildcard frontend/parser.y),$(BUILD)/gen/frontend/parser.c)
GEN_HDRS := $(GEN_SRCS:.c=.h) \
	$(if $(wildcard ir/dialect.irdl.mlir),$(BUILD)/gen/ir/dialect_irdl.h)

LIB_OBJS := $(LIB_SRCS:%.c=$(BUILD)/obj/%.o) $(GEN_SRCS:$(BUILD)/gen/%.c=$(BUILD)/obj/gen/%.o)
TOOL_OBJS := $(TOOL_SRCS:%.c=$(BUILD)/obj/%.o)

# MLIR, LLVM, libstdc++ and the compression libraries go in statically: nobody
# who runs attnc or links libattn needs them installed.
MLIR_LIBS = -Wl,--start-group $(LLVM)/lib/libMLIR*.a $(LLVM)/lib/libLLVM*.a -Wl,--end-group \
	-l:libzstd.a -l:libz.a
LINK := $(CXX) $(SAN) -static-libstdc++ -static-libgcc -pthread -Wl,--gc-sections -Wl,--build-id=sha1
SYS_LIBS := -ldl -lm

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all deps demo test parts unit errors cli ir ptx ptxas docs e2e fuzz-replay fuzz-specs gpu-tests \
	san san-replay bless install clean objs

all: $(BUILD)/attnc $(BUILD)/libattn.so $(BUILD)/libattn.a

deps:
	scripts/deps.sh

# Each of these installs first what is missing, then builds (make reads the folders
# anew, since the packages may be new).
demo: deps
	$(MAKE) $(BUILD)/attnc
	scripts/demo.sh $(BUILD)
test: deps
	$(MAKE) parts
	$(MAKE) san-replay
	@echo "make test: all parts passed"
parts: all unit errors cli ir ptx ptxas docs e2e

# ---- compile -------------------------------------------------------------
$(BUILD)/obj/%.o: %.c | $(GEN_HDRS)
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c | $(GEN_HDRS)
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CPPFLAGS) $(GEN_CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/gen/frontend/parser.c $(BUILD)/gen/frontend/parser.h &: frontend/parser.y
	@mkdir -p $(BUILD)/gen/frontend
	bison -Wall -Werror --no-lines --header=$(BUILD)/gen/frontend/parser.h \
		-o $(BUILD)/gen/frontend/parser.c $<

$(BUILD)/gen/frontend/lexer.c $(BUILD)/gen/frontend/lexer.h &: frontend/lexer.l
	@mkdir -p $(BUILD)/gen/frontend
	flex --noline --header-file=$(BUILD)/gen/frontend/lexer.h -o $(BUILD)/gen/frontend/lexer.c $<

# The dialect's IRDL text as a C array, ir_dialect_irdl[].
$(BUILD)/gen/ir/dialect_irdl.h: ir/dialect.irdl.mlir
	@mkdir -p $(@D)
	{ echo 'static const char ir_dialect_irdl[] = {'; xxd -i < $<; echo ', 0};'; } > $@

# `make objs DIR=emulator` compiles one folder only.
objs: $(filter $(BUILD)/obj/$(DIR)/%,$(LIB_OBJS) $(TOOL_OBJS)) \
	$(filter $(BUILD)/obj/gen/$(DIR)/%,$(LIB_OBJS))

# ---- link ----------------------------------------------------------------
$(BUILD)/attnc: $(TOOL_OBJS) $(LIB_OBJS)
	@echo "  LINK $@"
	@$(LINK) -o $@ $^ $(MLIR_LIBS) $(SYS_LIBS) $(if $(SAN),,-s)

# The library hides everything but attn_*, so that it can live in one process
# with other users of MLIR.
$(BUILD)/libattn.so: $(LIB_OBJS) runtime/libattn.map
	@echo "  LINK $@"
	@$(LINK) -shared -Wl,-soname,libattn.so.0 -Wl,--version-script=runtime/libattn.map \
		-Wl,-Bsymbolic -Wl,--exclude-libs,ALL -o $@ $(LIB_OBJS) $(MLIR_LIBS) $(SYS_LIBS) -s

# One relocatable object with MLIR inside and only attn_* visible: a static
# archive that needs no LLVM either.
EXPORTS = $(shell sed -n 's|.*\(attn_[a-z_]*\)\x28.*|\1|p' include/attn.h | sort -u)
$(BUILD)/libattn.a: $(LIB_OBJS) include/attn.h
	@echo "  LINK $@"
	@$(CXX) -r -nostdlib -Wl,--gc-sections $(EXPORTS:%=-Wl,-u,%) -Wl,-e,attn_version \
		-o $(BUILD)/libattn.o $(LIB_OBJS) $(MLIR_LIBS)
	objcopy --wildcard --keep-global-symbol='attn_*' --strip-debug $(BUILD)/libattn.o
	rm -f $@ && ar rcs $@ $(BUILD)/libattn.o && rm $(BUILD)/libattn.o

# ---- tests ---------------------------------------------------------------
# The unit tests share one library with every symbol visible, so that linking
# MLIR is paid once.
$(BUILD)/libattn_internal.so: $(LIB_OBJS)
	@echo "  LINK $@"
	@$(LINK) -shared -o $@ $^ $(MLIR_LIBS) $(SYS_LIBS)

TOOL_MODULES := $(filter-out $(BUILD)/obj/tools/main.o,$(TOOL_OBJS))
UNIT_SRCS := $(wildcard tests/unit/test_*.c)
UNIT_HELPERS := $(filter-out $(UNIT_SRCS),$(wildcard tests/unit/*.c))
UNIT_BINS := $(UNIT_SRCS:tests/unit/%.c=$(BUILD)/tests/unit/%)
UNIT_HELPER_OBJS := $(UNIT_HELPERS:%.c=$(BUILD)/obj/%.o)
UNIT_LIBS := $(UNIT_HELPER_OBJS) $(TOOL_MODULES) $(BUILD)/libattn_internal.so

$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(UNIT_LIBS)
	@mkdir -p $(@D)
	@echo "  LINK $@"
	@$(CC) $(SAN) -pthread -o $@ $< $(UNIT_LIBS) \
		-Wl,-rpath,'$$ORIGIN/../..' -lcriterion $(SYS_LIBS)

# `make unit T=arena` runs one.
unit: $(if $(T),$(BUILD)/tests/unit/test_$(T),$(UNIT_BINS))
	@set -e; for t in $^; do echo "== $$t"; ATTN_BUILD=$(BUILD) $$t -j2 --short-filename; done

# Texts and exit statuses of the command line, golden diagnostics, examples of the manuals.
errors: $(BUILD)/attnc
	tests/errors/run.sh $(BUILD)/attnc
cli: $(BUILD)/attnc
	tests/cli/run.sh $(BUILD)
# Every spec through ptxas, where there is one.
ptxas: $(BUILD)/attnc
	tests/ptxas.sh $(BUILD)
docs: $(BUILD)/attnc
	tests/docs.sh $(BUILD)/attnc docs/language.md

bless: $(BUILD)/attnc
	tests/errors/run.sh --bless $(BUILD)/attnc

# IR and PTX goldens: RUN and CHECK lines in the inputs.
LIT = ATTN_BUILD=$(abspath $(BUILD)) $(LLVM)/bin/lit -j2 -q
ir: $(BUILD)/attnc
	$(LIT) tests/ir
ptx: $(BUILD)/attnc
	$(LIT) tests/ptx

# Programs that run specs from text to numbers; self-contained like attnc.
E2E_OBJS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/e2e/*.c))
RANDOM_OBJS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/random/*.c)) \
	$(filter-out $(BUILD)/obj/tests/e2e/main.o,$(E2E_OBJS))
$(BUILD)/tests/e2e/run: $(E2E_OBJS) $(LIB_OBJS)
	@mkdir -p $(@D)
	@echo "  LINK $@"
	@$(LINK) -o $@ $^ $(MLIR_LIBS) $(SYS_LIBS)
$(BUILD)/tests/random/run: $(RANDOM_OBJS) $(LIB_OBJS)
	@mkdir -p $(@D)
	@echo "  LINK $@"
	@$(LINK) -o $@ $^ $(MLIR_LIBS) $(SYS_LIBS)

e2e: $(BUILD)/tests/e2e/run $(BUILD)/tests/random/run
	$(BUILD)/tests/e2e/run --seeds 2
	$(BUILD)/tests/random/run --count 200

# More random specs: make fuzz-specs N=5000 SEED=1
N ?= 1000
SEED ?= 1
fuzz-specs: $(BUILD)/tests/random/run
	$(BUILD)/tests/random/run --count $(N) --seed $(SEED)

# What goes to a machine with a GPU: everything self-contained (tests/gpu/run.sh).
RUNTIME_TEST_SRCS := tests/gpu/runtime.c $(wildcard support/*.c) \
	$(filter-out runtime/api_compile.c,$(wildcard runtime/*.c))
$(BUILD)/tests/gpu/runtime: $(RUNTIME_TEST_SRCS)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $^ -o $@ -ldl -lm
gpu-tests: $(BUILD)/attnc $(BUILD)/libattn.so $(BUILD)/tests/e2e/run $(BUILD)/tests/gpu/runtime

# The fuzzers' corpora through the same entry points, under the sanitizers.
FUZZ_CORPORA := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_OBJS := $(BUILD)/obj/tests/fuzz/replay.o $(filter $(foreach d,support frontend emulator \
	gen/frontend,$(BUILD)/obj/$(d)/%),$(LIB_OBJS))
$(BUILD)/tests/fuzz/%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(FUZZ_OBJS)
	@mkdir -p $(@D)
	@echo "  LINK $@"
	@$(CC) $(SAN) -pthread -o $@ $^ $(SYS_LIBS)
fuzz-replay: $(FUZZ_CORPORA:%=$(BUILD)/tests/fuzz/%)
	set -e; for c in $(FUZZ_CORPORA); do \
		find tests/fuzz/corpus/$$c -type f -print0 | xargs -0 $(BUILD)/tests/fuzz/$$c; done

# A second build under AddressSanitizer and UBSan: `make test` replays the corpora in it,
# `make san` runs the unit tests, too.
SAN_MAKE := $(MAKE) BUILD=build-san OPT="-O1 -g" \
	SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
san:
	$(SAN_MAKE) unit fuzz-replay
san-replay:
	$(SAN_MAKE) fuzz-replay

# ---- install ---------------------------------------------------------------
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig \
		$(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(BUILD)/attnc $(DESTDIR)$(PREFIX)/bin/attnc
	install -m 755 $(BUILD)/libattn.so $(DESTDIR)$(PREFIX)/lib/libattn.so.0
	ln -sf libattn.so.0 $(DESTDIR)$(PREFIX)/lib/libattn.so
	install -m 644 $(BUILD)/libattn.a $(DESTDIR)$(PREFIX)/lib/libattn.a
	install -m 644 include/attn.h $(DESTDIR)$(PREFIX)/include/attn.h
	install -m 644 docs/attnc.1 $(DESTDIR)$(PREFIX)/share/man/man1/attnc.1
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' attn.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/attn.pc

clean:
	rm -rf $(BUILD) build-san

-include $(LIB_OBJS:.o=.d) $(TOOL_OBJS:.o=.d) $(UNIT_BINS:$(BUILD)/tests/%=$(BUILD)/obj/tests/%.d) \
	$(UNIT_HELPER_OBJS:.o=.d) $(E2E_OBJS:.o=.d) $(RANDOM_OBJS:.o=.d)
