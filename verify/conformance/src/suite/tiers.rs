//! Tiers of code: the same results whether a kernel is optimized or not, also in fast math.

use elinvar::{Device, Grid, Kernel, KernelOptions, Source, Tier};

use super::{CaseResult, launch};

cases!("tiers": same_results, waiting_for_optimized_code);

const N: usize = 1001;
const GROUP: usize = 96;

/// Contraction within and across statements, division, sums that could be reassociated, divergent loops and branches, `half`, and reductions
/// over simdgroups that are not full.
const MIXED: &str = "#include <metal_stdlib>
    using namespace metal;
    kernel void mixed(device const float* a, device const float* b, device float* out, constant uint& n,
                      uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
        float x = a[i], y = b[i];
        float product = x * y;
        float r = product + x / y - y * y;
        r += (x + y) + (x - y) * 3.0f + (x * 0.1f + y * 0.2f);
        for (uint k = 0; k < i % 7; ++k) {
            r = r * x + y / (r * r + 1.5f) - float(k) * x;
        }
        if (lane % 3 == 1) {
            r -= rsqrt(x * x + y * y + 0.5f) * x - y * 0.25f;
        }
        half h = half(x) * half(y) + half(1.25f);
        h = h / half(3.0f) - half(x);
        r += float(h) + simd_sum(x * y) + simd_prefix_inclusive_product(1.0f + 0.01f * x) + simd_max(y - x);
        out[i] = r / float(n) + exp(x * 0.5f) * y;
    }";

fn kernel(device: &Device, tier: Tier) -> elinvar::Result<Kernel> {
    let library = device.compile(Source::named("mixed.metal", MIXED))?;
    library.kernel_with("mixed", KernelOptions::new().tier(tier))
}

fn inputs() -> (Vec<f32>, Vec<f32>) {
    let a = (0..N).map(|i| ((i * 37) % 101) as f32 * 0.03 - 1.5).collect();
    let b = (0..N).map(|i| ((i * 53) % 89) as f32 * 0.02 + 0.1).collect();
    (a, b)
}

fn results(device: &Device, kernel: &Kernel) -> elinvar::Result<Vec<u32>> {
    let (a, b) = inputs();
    let (a, b) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let mut out = device.buffer::<f32>(N)?;
    let grid = Grid::threads(N).group(GROUP);
    launch(kernel, &device.stream()?, grid, (&a, &b, &mut out, N as u32))?.wait()?;
    Ok(out.to_vec()?.into_iter().map(f32::to_bits).collect())
}

fn same_results(device: &Device) -> CaseResult {
    let optimized = results(device, &kernel(device, Tier::Optimized)?)?;
    let finite = optimized.iter().filter(|bits| f32::from_bits(**bits).is_finite()).count();
    assert_eq!(finite, N, "finite results");
    for tier in [Tier::Quick, Tier::Adaptive] {
        let others = results(device, &kernel(device, tier)?)?;
        for (i, (other, one)) in others.iter().zip(&optimized).enumerate() {
            let values = [other, one].map(|bits| f32::from_bits(*bits));
            assert_eq!(other, one, "element {i} of tier {tier:?}: {values:?}");
        }
    }
    Ok(())
}

fn waiting_for_optimized_code(device: &Device) -> CaseResult {
    let kernel = kernel(device, Tier::Optimized)?;
    kernel.optimize(GROUP)?;
    assert_eq!(kernel.is_optimized(GROUP)?, Some(true));
    assert_eq!(results(device, &kernel)?, results(device, &kernel)?);
    let error = kernel.optimize([u32::MAX, 1, 1]).unwrap_err();
    assert!(matches!(error, elinvar::Error::InvalidArgument(_)), "{error}");
    Ok(())
}
