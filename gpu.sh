cat > /tmp/t.py <<'P'
import sys, json, time, os; sys.path.insert(0, ".")
import numpy as np, statistics, random
from dataclasses import replace, asdict
from concurrent.futures import ProcessPoolExecutor
from cupygemm._hopper.config import CONFIGS, HopperConfig, HopperArch, check
from cupygemm._hopper.select import select, _with_splits, estimate
from cupygemm._problem import GemmProblem
def problem(m,n,k): return GemmProblem(m=m,n=n,k=k,batch=(),a_dtype="bf16",b_dtype="bf16",out_dtype="bf16",a_major="k",b_major="n")
random.seed(5)
shapes = [(256,256,65536),(1024,1024,1024),(512,512,512),(2048,2048,2048),(4096,4096,4096),(128,8192,8192),(16,8192,8192),(64,8192,8192),(65536,256,256),(8192,8192,256),(4096,14336,4096),(1024,512,4096),(1536,1536,1536),(3000,3000,3000),(304,1000,3000),(384,640,8192),(5120,5120,5120),(1280,1280,1280),(64,96,8192),(2304,2304,2304)]
def r(lo, hi): return int(round(2 ** random.uniform(np.log2(lo), np.log2(hi)) / 8) * 8)
while len(shapes) < 56:
    s = (r(16, 8192), r(64, 8192), r(128, 16384))
    if 2*s[0]*s[1]*s[2] < 3e11: shapes.append(s)
arch = HopperArch()
def candidates(p):
    found = []
    for base in CONFIGS:
        for c in _with_splits(base, p, arch):
            if check(c, p, arch) is None: found.append((estimate(c, p, arch).cycles, c))
    found.sort(key=lambda x: x[0])
    return [c for e, c in found if e < 1.9 * found[0][0]][:34]
def compile_one(c):
    from cupygemm._hopper.source import generate, add_source
    from cupygemm._hopper.compile import compile_cubin
    compile_cubin(generate(problem(4096,4096,4096), c, tma_store=True), "cupygemm_gemm")
def main():
    t0 = time.time()
    variants = {}
    for s in shapes:
        for c in candidates(problem(*s)):
            v = replace(c, split_k=min(c.split_k, 2), stream_k=min(c.stream_k, 2))
            variants[(v)] = c
    with ProcessPoolExecutor(15) as ex: list(ex.map(compile_one, variants))
    print("compiled", len(variants), time.time() - t0, flush=True)
    import cupy as cp, torch
    from benchmarks.compare import Timer
    from benchmarks.contenders import Case, _uniform, _torch_uniform, BF16
    from cupygemm._layout import Operand
    from cupygemm._options import Options
    from cupygemm._pose import pose
    from cupygemm._hopper.plan import choose, make_runner
    from cupygemm._device import device
    from cupygemm import testing
    timer = Timer(); found = device(0)
    def posed_of(a, b):
        ops = [Operand(v.shape, v.strides, v.dtype, v.data.ptr) for v in (a, b)]
        return pose(*ops, options=Options(a.dtype, "unsafe"), products=found.products, epilogue_products=found.epilogue_products, row_bytes=found.row_bytes)
    # exactness of stream-K on the device
    bad = 0
    for m,n,k in ((1000,1000,3000),(3000,700,520),(300,300,9000),(4096,1100,264),(2000,2000,640)):
        x1,x2 = testing.integer_operands((m,k),(k,n),BF16); a,b = cp.asarray(x1), cp.asarray(x2); posed = posed_of(a,b)
        for c in CONFIGS:
            c = replace(c, stream_k=132//c.cluster_size)
            if check(c, posed.layout.problem, found.arch): continue
            run = make_runner(posed, choose(posed.layout, found.arch, c))
            rs = [run(a,b,None) for _ in range(6)]
            testing.assert_gemm_exact(rs[-1], x1, x2)
            bad += sum(not bool((rs[0] == r).all()) for r in rs)
    print("stream exact; differing", bad, time.time() - t0, flush=True)
    out = []
    for s in shapes:
        if time.time() - t0 > 150: break
        m,n,k = s; case = Case(*s)
        a, b = _uniform(case.shapes, BF16); x, y = _torch_uniform(case.shapes, torch.bfloat16)
        posed = posed_of(a, b)
        calls = {"torch": lambda: torch.matmul(x, y)}; cs = {}
        for c in candidates(posed.layout.problem):
            run = make_runner(posed, choose(posed.layout, found.arch, c))
            calls[c.name] = lambda run=run: run(a, b, None); cs[c.name] = c
        counts = {}
        for nm, f in calls.items():
            f(); f()
            counts[nm] = max(3, min(200, int(0.003 / timer.on_device(f, 2))))
        t = {nm: [] for nm in calls}
        for _ in range(3):
            for nm, f in calls.items(): t[nm].append(timer.on_device(f, counts[nm]) * 1e6)
        t = {nm: statistics.median(v) for nm, v in t.items()}
        out.append({"shape": s, "torch": t["torch"], "times": [[asdict(cs[nm]), v] for nm, v in t.items() if nm != "torch"]})
        order = sorted((v, nm) for nm, v in t.items() if nm != "torch")
        chosen = next(iter(cs))
        print(s, f"torch {t['torch']:.2f} chosen {chosen} {t[chosen]:.2f} ({t['torch']/t[chosen]:.3f}) best {order[0][1]} {order[0][0]:.2f} ({t['torch']/order[0][0]:.3f})", flush=True)
        cp.get_default_memory_pool().free_all_blocks()
        json.dump(out, open(os.environ["OUT"] + "/sweep.json", "w"))
    print(time.time() - t0)
if __name__ == "__main__": main()
P
timeout 175 python3 /tmp/t.py
