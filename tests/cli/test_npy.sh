# .npy files in and out of attnc run.
. "$ROOT/tests/cli/lib.sh"
command -v python3 >/dev/null || { skip "no python3"; finish; exit 0; }

# npy.py make NAME DESCR SHAPE EXPRESSION: element i (the C-order index) by a formula.
# npy.py show NAME: shape and values.
cat >npy.py <<'PY'
import ast, math, struct, sys
codes = {'<f4': 'f', '<f8': 'd', '<f2': 'e', '<i4': 'i', '<i8': 'q', '|b1': '?', '|u1': 'B'}
def load(name):
    b = open(name, 'rb').read()
    assert b[:8] == b'\x93NUMPY\x01\x00'
    n = struct.unpack('<H', b[8:10])[0]
    assert (10 + n) % 64 == 0
    h = ast.literal_eval(b[10:10 + n].decode())
    count = math.prod(h['shape'])
    return h['shape'], struct.unpack('<%d%s' % (count, codes[h['descr']]), b[10 + n:])
if sys.argv[1] == 'make':
    name, descr, shape, formula = sys.argv[2:]
    shape = ast.literal_eval(shape)
    values = [eval(formula, {'i': i, 'nan': math.nan, 'inf': math.inf}) for i in range(math.prod(shape))]
    h = repr({'descr': descr, 'fortran_order': False, 'shape': shape}).encode()
    h += b' ' * (63 - (10 + len(h)) % 64) + b'\n'
    open(name, 'wb').write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(h)) + h +
                           struct.pack('<%d%s' % (len(values), codes[descr]), *values))
else:
    shape, values = load(sys.argv[2])
    print(shape, *values)
PY
make_npy() { python3 npy.py make "$@"; }

printf 'attention a { dtype bf16; head_dim 8; tensor doc: i32[batch, kv_len]; mask doc[b, q] == doc[b, kv]; }\n' >a.attn

# Scores are 0 where q is 0: O is the mean of V over the own document.
make_npy q.npy '<f4' '(1, 1, 4, 8)' '0'
make_npy v.npy '<f2' '(1, 1, 4, 8)' 'i // 8 * 2.0'
for type in '<i8' '<i4' '|u1'; do
    make_npy doc.npy "$type" '(1, 4)' 'i // 2'
    run run a.attn --device reference --q-len 4 --q q.npy --v v.npy --tensor doc=doc.npy \
        --o o.npy --lse lse.npy --check
    status_is 0
    holds "O is the mean of each document" test "$(python3 npy.py show o.npy)" = \
        "(1, 1, 4, 8)$(printf ' 1.0%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)$(printf ' 5.0%.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)"
    holds "LSE is log 2" sh -c 'python3 npy.py show lse.npy | grep -q "^(1, 1, 4) 0.6931471"'
done

# `-` is standard output; the report goes to standard error then.
run run a.attn --device reference --q-len 4 --q q.npy --v v.npy --tensor doc=doc.npy --lse - --check
status_is 0
err_has "check: passed"
holds "standard output is the array alone" cmp stdout lse.npy

# NaN in q stays in its row.
make_npy nan.npy '<f8' '(1, 1, 4, 8)' 'nan if i == 9 else 1'
run run a.attn --device reference --q-len 4 --q nan.npy --v v.npy --tensor doc=doc.npy --lse - --check
status_is 0
err_has "1 NaN"

refuses() { # refuses TEXT ARGS...
    text=$1
    shift
    run run a.attn --device reference --q-len 4 "$@"
    status_is 1
    err_has "$text"
}
make_npy short.npy '<f4' '(1, 1, 3, 8)' '0'
refuses "--q: 'short.npy' has shape (1, 1, 3, 8), expected (1, 1, 4, 8)" --q short.npy --tensor doc=doc.npy
make_npy ints.npy '<i4' '(1, 1, 4, 8)' '0'
refuses "--q: 'ints.npy' holds int32, expected float16" --q ints.npy --tensor doc=doc.npy
make_npy floats.npy '<f4' '(1, 4)' '0'
refuses "--tensor doc: 'floats.npy' holds float32, the tensor is i32" --tensor doc=floats.npy
make_npy large.npy '<i8' '(1, 4)' '1 << (i * 15)'
refuses "--tensor doc: element 3 of 'large.npy' is 35184372088832, out of range for i32" --tensor doc=large.npy
make_npy flat.npy '<i4' '(4,)' '0'
refuses "--tensor doc: 'flat.npy' has shape (4,), expected (1, 4)" --tensor doc=flat.npy
make_npy huge.npy '<f8' '(1, 1, 4, 8)' '1e300 if i == 5 else 0'
refuses "--q: element 5 of 'huge.npy' is 1e+300, out of range for bf16" --q huge.npy --tensor doc=doc.npy
head -c 40 q.npy >cut.npy
refuses "--q: 'cut.npy': the header is cut off" --q cut.npy --tensor doc=doc.npy
refuses "no .npy file" --q npy.py --tensor doc=doc.npy
run run a.attn --device reference --q-len 4 --tensor doc=doc.npy --o /nonexistent/o.npy
status_is 1
err_has "--o '/nonexistent/o.npy': cannot open: No such file or directory"

# numpy itself, where it is installed.
if python3 -c 'import numpy' 2>/dev/null; then
    python3 -c "import numpy; numpy.save('np.npy', numpy.arange(32, dtype='f4').reshape(1, 1, 4, 8))"
    run run a.attn --device reference --q-len 4 --k np.npy --tensor doc=doc.npy --o o.npy
    status_is 0
    holds "numpy reads O" python3 -c "import numpy; assert numpy.load('o.npy').shape == (1, 1, 4, 8)"
fi
finish
