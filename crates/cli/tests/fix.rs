//! `elinvar analyze --fix`: patched kernels compile, have equal results on the CPU, and are not advised on again.

mod common;

use common::{Folder, elinvar};
use elinvar::{Device, Grid, Source};
use serde_json::Value;

const ADVICE: &str = include_str!("../src/bench/kernels/advice.metal");
const REDUCE: &str = include_str!("../src/bench/kernels/reduce.metal");

/// Runs a kernel over the numbers from 0 on, and returns what it writes to its second argument.
fn results(text: &str, kernel: &str, grid: [u32; 2], group: [u32; 2], len: usize, out: usize) -> Vec<f32> {
    let device = Device::cpu().expect("a CPU");
    let library = device.compile(Source::named("k.metal", text)).expect("compiles");
    let kernel = library.kernel(kernel).expect("a kernel");
    let numbers: Vec<f32> = (0..len).map(|at| (at % 1021) as f32).collect();
    let input = device.buffer_with_data(&numbers).expect("memory");
    let mut output = device.buffer_with_data(&vec![-1.0_f32; out]).expect("memory");
    let stream = device.stream().expect("a stream");
    let grid = Grid::threads((grid[0], grid[1])).group((group[0], group[1]));
    let takes_side = kernel.signature().args.len() == 3;
    #[allow(unsafe_code)]
    // SAFETY: the buffers are as long as the kernel's accesses of this grid.
    let launched = unsafe {
        match takes_side {
            true => kernel.launch(&stream, grid, (&input, &mut output, (len as f64).sqrt() as u32)),
            false => kernel.launch(&stream, grid, (&input, &mut output)),
        }
    };
    launched.expect("a launch").wait().expect("an end");
    output.to_vec().expect("the results")
}

fn remedies(file: &str, kernel: &str) -> Vec<String> {
    let json = elinvar(&["analyze", file, "--kernel", kernel, "--json"]).json();
    let advice = json["kernels"][0]["advice"].as_array().expect("advice").clone();
    advice.iter().filter_map(|one| one["remedy"].as_str().map(str::to_owned)).collect()
}

#[test]
fn patched_kernels_have_equal_results() {
    const SIDE: u32 = 64;
    // Sizes of the launch before and after.
    type Sizes = [[u32; 2]; 2];
    let cases: [(&str, &str, &str, Sizes, Sizes, usize, usize); 3] = [
        (ADVICE, "columns", "swap-axes", [[SIDE, 40], [32, 8]], [[40, SIDE], [8, 32]], 4096, 4096),
        (ADVICE, "tile", "pad-tile", [[SIDE, 16], [32, 8]], [[SIDE, 16], [32, 8]], 4096, 4096),
        (REDUCE, "reduce_tree", "simdgroup-reduction", [[1024, 1], [256, 1]], [[1024, 1], [256, 1]], 1024, 4),
    ];
    for (text, kernel, remedy, before, after, len, out) in cases {
        let folder = Folder::new();
        let file = folder.write("k.metal", text);
        assert_eq!(remedies(&file, kernel), [remedy], "{kernel}");

        let patch = elinvar(&["analyze", &file, "--kernel", kernel, "--fix", "--dry-run"]);
        patch.expect(0, &[]);
        assert!(patch.stdout.starts_with(&format!("--- a/{file}\n+++ b/{file}\n@@ ")), "{}", patch.stdout);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "--dry-run changes nothing");

        let fixed = elinvar(&["analyze", &file, "--kernel", kernel, "--fix"]);
        fixed.expect(0, &[]);
        assert!(fixed.stdout.contains(&format!("kernel `{kernel}`: {remedy}: fixed")), "{}", fixed.stdout);
        let patched = std::fs::read_to_string(&file).unwrap();
        assert_ne!(patched, text);
        assert!(remedies(&file, kernel).is_empty(), "{kernel} is advised on again:\n{patched}");
        let json = elinvar(&["analyze", &file, "--kernel", kernel, "--json"]).json();
        assert_eq!(json["kernels"][0]["findings"], Value::Array(Vec::new()), "{kernel}");

        let expected = results(text, kernel, before[0], before[1], len, out);
        let found = results(&patched, kernel, after[0], after[1], len, out);
        assert!(expected.iter().any(|value| *value > 0.0), "{kernel} writes");
        assert_eq!(found, expected, "{kernel}:\n{patched}");
        // A group that is no power of two, which the tree would not sum; simdgroups of which one is partial.
        if remedy == "simdgroup-reduction" {
            let found = results(&patched, kernel, [1000, 1], [100, 1], 1000, 10);
            let sum =
                |group: usize| (group * 100..group * 100 + 100).map(|at| (at % 1021) as f32).sum::<f32>();
            assert_eq!(found, (0..10).map(sum).collect::<Vec<f32>>(), "{patched}");
        }
    }
}

#[test]
fn what_cannot_be_fixed_is_said() {
    let folder = Folder::new();
    let address = ADVICE.replace(
        "= a[(y + row) * n + x];",
        "= a[(y + row) * n + x]; threadgroup float* p = &t[0][0]; p[0] = t[0][0];",
    );
    let file = folder.write("k.metal", address.replace("&t[0][0]", "(threadgroup float*)t"));
    let ended = elinvar(&["analyze", &file, "--kernel", "tile", "--fix"]);
    ended.expect(0, &["pad-tile: not fixed: `t` is also used without two indices"]);

    let rest = REDUCE.replacen("sums[group] = partial[0];", "sums[group] = partial[0] + partial[1];", 1);
    let file = folder.write("rest.metal", &rest);
    let ended = elinvar(&["analyze", &file, "--kernel", "reduce_tree", "--fix"]);
    ended.expect(0, &["simdgroup-reduction: not fixed: elements of `partial` other than the first"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), rest);

    let other = REDUCE.replacen("step = size / 2;", "step = (size / 2);", 1);
    let file = folder.write("other.metal", &other);
    let ended = elinvar(&["analyze", &file, "--kernel", "reduce_tree", "--fix"]);
    ended.expect(0, &["simdgroup-reduction: not fixed: it is not written as"]);
}
