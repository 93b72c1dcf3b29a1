"""libattn from Python through ctypes, for benchmarks and GPU tests.

A thin mirror of include/attn.h: Program (compile), Kernel (load) and Plan
(arguments checked once).  Tensors are PyTorch CUDA tensors; their shapes and
strides become DLTensors, nothing is copied.
"""
import ctypes as C
import os


class DLDevice(C.Structure):
    _fields_ = [("device_type", C.c_int), ("device_id", C.c_int)]


class DLDataType(C.Structure):
    _fields_ = [("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16)]


class DLTensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device", DLDevice), ("ndim", C.c_int),
                ("dtype", DLDataType), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)), ("byte_offset", C.c_uint64)]


class Source(C.Structure):
    _fields_ = [("text", C.c_char_p), ("text_size", C.c_size_t), ("path", C.c_char_p)]


class ContextOptions(C.Structure):
    _fields_ = [("cache", C.c_int), ("cache_dir", C.c_char_p)]


class CompileOptions(C.Structure):
    _fields_ = [("entry", C.c_char_p), ("target", C.c_char_p), ("schedule", C.c_char_p),
                ("include_dirs", C.POINTER(C.c_char_p)), ("include_count", C.c_size_t)]


class ParamValue(C.Union):
    _fields_ = [("i32", C.c_int32), ("f32", C.c_float), ("boolean", C.c_bool)]


class TensorArg(C.Structure):
    _fields_ = [("name", C.c_char_p), ("tensor", C.POINTER(DLTensor))]


class ParamArg(C.Structure):
    _fields_ = [("name", C.c_char_p), ("type", C.c_int), ("value", ParamValue)]


class Args(C.Structure):
    _fields_ = [(n, C.POINTER(DLTensor)) for n in ("q", "k", "v", "o", "lse")] + [
        ("tensors", C.POINTER(TensorArg)), ("tensor_count", C.c_size_t),
        ("params", C.POINTER(ParamArg)), ("param_count", C.c_size_t),
        ("workspace", C.c_void_p), ("workspace_bytes", C.c_size_t)]


CACHE_DISK, CACHE_MEMORY, CACHE_OFF = 0, 1, 2
PARAM_TYPES = {bool: (0, "boolean"), int: (1, "i32"), float: (2, "f32")}
# torch dtype name -> DLPack (code, bits)
DTYPES = {"float16": (2, 16), "bfloat16": (4, 16), "float32": (2, 32), "int32": (0, 32),
          "bool": (6, 8), "uint8": (1, 8)}


class Error(RuntimeError):
    """A status of the library that is not success."""


def load(path=None):
    """The library, from `path`, $ATTN_LIBRARY or build/libattn.so."""
    here = os.path.dirname(os.path.abspath(__file__))
    lib = C.CDLL(path or os.environ.get("ATTN_LIBRARY") or
                 os.path.join(here, "..", "build", "libattn.so"))
    lib.attn_version.restype = C.c_char_p
    lib.attn_status_text.restype = C.c_char_p
    lib.attn_program_ptx.restype = C.c_char_p
    lib.attn_program_json.restype = C.c_char_p
    lib.attn_program_target.restype = C.c_char_p
    lib.attn_program_from_cache.restype = C.c_bool
    for name in ("context_create", "compile", "program_cubin", "kernel_load",
                 "kernel_load_device", "workspace_size", "workspace_clear", "launch",
                 "plan_create", "plan_launch"):
        getattr(lib, "attn_" + name).restype = C.c_void_p
    lib.attn_plan_launch.argtypes = [C.c_void_p, C.c_void_p]
    return lib


class Library:
    """libattn with one context."""

    def __init__(self, path=None, cache=CACHE_OFF, cache_dir=None):
        self.lib = load(path)
        options = ContextOptions(cache, cache_dir.encode() if cache_dir else None)
        self.context = C.c_void_p()
        self.check(self.lib.attn_context_create(C.byref(options), C.byref(self.context)))

    def check(self, status):
        if status:
            status = C.c_void_p(status)
            text = self.lib.attn_status_text(status).decode(errors="replace")
            self.lib.attn_status_destroy(status)
            raise Error(text)

    def version(self):
        return self.lib.attn_version().decode()

    def compile(self, text, target=None, schedule=None, name="spec.attn"):
        return Program(self, text, target, schedule, name)


class Program:
    def __init__(self, library, text, target, schedule, name):
        self.api = library
        data = text.encode()
        source = Source(data, len(data), name.encode())
        options = CompileOptions(None, target.encode() if target else None,
                                 schedule.encode() if schedule else None, None, 0)
        self.handle = C.c_void_p()
        library.check(library.lib.attn_compile(library.context, C.byref(source),
                                               C.byref(options), C.byref(self.handle)))

    def ptx(self):
        return self.api.lib.attn_program_ptx(self.handle).decode()

    def target(self):
        return self.api.lib.attn_program_target(self.handle).decode()

    def json(self):
        return self.api.lib.attn_program_json(self.handle).decode()

    def from_cache(self):
        return self.api.lib.attn_program_from_cache(self.handle)

    def load(self, device=0):
        return Kernel(self, device)


class Kernel:
    """A program loaded into the primary context of a device."""

    def __init__(self, program, device):
        self.program, self.api = program, program.api
        self.handle = C.c_void_p()
        self.api.check(self.api.lib.attn_kernel_load_device(
            program.handle, C.c_int(device), C.byref(self.handle)))

    def bind(self, q, k, v, o, lse=None, tensors=None, params=None):
        return Plan(self, q, k, v, o, lse, tensors or {}, params or {})


class Plan:
    """Arguments of one call.  launch() goes by the prepared plan, launch_checked()
    through every check."""

    def __init__(self, kernel, q, k, v, o, lse, tensors, params):
        import torch
        self.kernel, self.api = kernel, kernel.api
        self.keep = [q, k, v, o, lse, tensors]
        args = Args()
        for name, t in zip(("q", "k", "v", "o", "lse"), (q, k, v, o, lse)):
            if t is not None:
                setattr(args, name, C.pointer(self.dltensor(t)))
        tensor_args = (TensorArg * max(1, len(tensors)))()
        for i, (name, t) in enumerate(tensors.items()):
            tensor_args[i] = TensorArg(name.encode(), C.pointer(self.dltensor(t)))
        param_args = (ParamArg * max(1, len(params)))()
        for i, (name, value) in enumerate(params.items()):
            kind, field = PARAM_TYPES[type(value)]
            param_args[i].name, param_args[i].type = name.encode(), kind
            setattr(param_args[i].value, field, value)
        args.tensors, args.tensor_count = tensor_args, len(tensors)
        args.params, args.param_count = param_args, len(params)
        size = C.c_size_t()
        lib = self.api.lib
        self.api.check(lib.attn_workspace_size(kernel.handle, C.byref(args), C.byref(size)))
        if size.value:
            self.workspace = torch.zeros(size.value, dtype=torch.uint8, device=q.device)
            args.workspace, args.workspace_bytes = self.workspace.data_ptr(), size.value
        self.args = args
        self.handle = C.c_void_p()
        self.api.check(lib.attn_plan_create(kernel.handle, C.byref(args),
                                                C.byref(self.handle)))
        self.launch_function = lib.attn_plan_launch

    def dltensor(self, t):
        code, bits = DTYPES[str(t.dtype).removeprefix("torch.")]
        shape = (C.c_int64 * t.dim())(*t.shape)
        strides = (C.c_int64 * t.dim())(*t.stride())
        self.keep += [shape, strides]
        return DLTensor(t.data_ptr(), DLDevice(2, t.device.index or 0), t.dim(),
                        DLDataType(code, bits, 1), shape, strides, 0)

    def launch(self, stream=None):
        import torch
        stream = torch.cuda.current_stream().cuda_stream if stream is None else stream
        status = self.launch_function(self.handle, stream)
        if status:
            self.api.check(status)

    def launch_checked(self, stream):
        self.api.check(self.api.lib.attn_launch(
            self.kernel.handle, C.byref(self.args), C.c_void_p(stream)))
