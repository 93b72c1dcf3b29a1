"""lit configuration: RUN lines find attnc, FileCheck and the MLIR tools on PATH,
and ptxas where a CUDA toolkit is installed."""
import os
import shutil

import lit.formats

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
build = os.environ.get("ATTN_BUILD", os.path.join(root, "build"))
llvm = os.environ.get("LLVM", "/usr/lib/llvm-22") + "/bin"
cuda = [os.path.join(d, "bin") for d in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if d]

config.name = "attn"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".mlir", ".attn"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))
config.test_exec_root = os.path.join(build, "lit")
config.environment["PATH"] = os.pathsep.join(
    [build, llvm] + cuda + [os.environ.get("PATH", "/usr/bin:/bin")])
config.substitutions.append(("%irdl", os.path.join(root, "ir", "dialect.irdl.mlir")))
config.substitutions.append(("%root", root))
if shutil.which("ptxas", path=config.environment["PATH"]):
    config.available_features.add("ptxas")
