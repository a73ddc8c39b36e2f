//! `elinvar run` of each example's kernel from `.npy` files, compared on every element with values computed
//! here and with NumPy's on the same files.
//!
//! Where Python has no NumPy the second comparison is left out with a line that says so; with
//! `ELINVAR_REQUIRE_NUMPY=1`, which `make test` sets, that fails. `ELINVAR_TEST_PYTHON` names the Python.

mod common;

use std::process::Command;

use common::{Folder, elinvar, example};

/// Runs a kernel; `out.npy` is what it wrote to `out`, an argument that begins as `initial`.
fn run(folder: &Folder, kernel: &str, grid: &str, group: &str, args: &[String], out: &str) {
    let file = example(kernel);
    let out = format!("{out}={}", folder.file("out.npy").display());
    let mut words = vec!["run", &file, "--kernel", kernel, "--grid", grid, "--group", group, "--out", &out];
    args.iter().for_each(|arg| words.extend(["--arg", arg]));
    elinvar(&words).expect(0, &[]);
}

/// Compares `out.npy` with what NumPy makes of `expression`, in type, shape and every element. In it,
/// `load(name)` is an input file.
fn compare_with_numpy(folder: &Folder, kernel: &str, expression: &str) {
    let python = std::env::var("ELINVAR_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let present =
        Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|o| o.status.success());
    if !present {
        let required = std::env::var("ELINVAR_REQUIRE_NUMPY").is_ok_and(|value| value == "1");
        assert!(!required, "{python} has no NumPy, and ELINVAR_REQUIRE_NUMPY asks for it");
        println!("{kernel}: not compared with NumPy, which {python} has not");
        return;
    }
    let script = format!(
        "import numpy as np, os, sys\n\
         load = lambda name: np.load(os.path.join(sys.argv[1], name + '.npy'))\n\
         out, expected = load('out'), {expression}\n\
         assert out.dtype == expected.dtype, (out.dtype, expected.dtype)\n\
         assert out.shape == expected.shape, (out.shape, expected.shape)\n\
         assert np.array_equal(out, expected), np.argwhere(out != expected)[:5]\n\
         print(out.size, 'elements equal those of NumPy', np.__version__)\n"
    );
    let output =
        Command::new(&python).arg("-c").arg(script).arg(folder.path()).output().expect("Python runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{kernel}: NumPy differs: {stderr}");
    println!("{kernel}: {}", stdout.trim());
}

#[test]
fn thread_ids() {
    let folder = Folder::new();
    let n = 100_003u32;
    folder.array("initial.npy", &[u64::from(n)], &vec![7u32; n as usize]);
    let args = [format!("out={}", folder.value("initial.npy"))];
    run(&folder, "thread_ids", &n.to_string(), "256", &args, "out");
    assert_eq!(folder.read("out.npy"), (vec![u64::from(n)], (0..n).collect::<Vec<u32>>()));
    compare_with_numpy(&folder, "thread_ids", "np.arange(load('initial').size, dtype=np.uint32)");
}

#[test]
fn vector_add() {
    let folder = Folder::new();
    let n = 10_007;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.37).collect();
    let b: Vec<f32> = (0..n).map(|i| 1000.0 - i as f32 * 1.1).collect();
    folder.array("a.npy", &[n], &a);
    folder.array("b.npy", &[n], &b);
    let args = [
        format!("a={}", folder.value("a.npy")),
        format!("b={}", folder.value("b.npy")),
        format!("out=f32:{n}:zeros"),
        format!("n={n}u32"),
    ];
    run(&folder, "vector_add", "10240", "256", &args, "out");
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(folder.read("out.npy"), (vec![n], expected));
    compare_with_numpy(&folder, "vector_add", "load('a') + load('b')");
}

#[test]
fn scale() {
    let folder = Folder::new();
    let input: Vec<f32> = (0..2048).map(|i| i as f32 - 1024.0).collect();
    folder.array("in.npy", &[32, 64], &input);
    let args = [
        format!("in={}", folder.value("in.npy")),
        "out=f32:32x64:random".to_owned(),
        "factor=2.7f32".to_owned(),
    ];
    run(&folder, "scale", "2048", "64", &args, "out");
    let expected: Vec<f32> = input.iter().map(|value| value * 2.7).collect();
    assert_eq!(folder.read("out.npy"), (vec![32, 64], expected));
    compare_with_numpy(&folder, "scale", "load('in') * np.float32(2.7)");
}

#[test]
fn matmul() {
    let folder = Folder::new();
    let (m, n, k) = (61, 67, 59);
    // Small whole numbers: every sum is exact, in whatever order it is taken.
    let a: Vec<f32> = (0..m * k).map(|i| (i * 5 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i * 3 % 13) as f32 - 6.0).collect();
    folder.array("a.npy", &[m as u64, k as u64], &a);
    folder.array("b.npy", &[k as u64, n as u64], &b);
    let args = [
        format!("a={}", folder.value("a.npy")),
        format!("b={}", folder.value("b.npy")),
        format!("c=f32:{m}x{n}:zeros"),
        format!("m={m}u32"),
        format!("n={n}u32"),
        format!("k={k}u32"),
    ];
    run(&folder, "matmul", &format!("{n},{m}"), "16,16", &args, "c");
    let element = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    let expected: Vec<f32> = (0..m * n).map(element).collect();
    assert_eq!(folder.read("out.npy"), (vec![m as u64, n as u64], expected));
    compare_with_numpy(&folder, "matmul", "load('a') @ load('b')");
}

#[test]
fn reduce() {
    let folder = Folder::new();
    let n = 100_003;
    let input: Vec<f32> = (0..n).map(|i| (i % 17) as f32).collect();
    folder.array("in.npy", &[n], &input);
    let args = [
        format!("in={}", folder.value("in.npy")),
        "total=f32:1:0.5".to_owned(),
        format!("n={n}u32"),
        "part=threadgroup:1024".to_owned(),
    ];
    run(&folder, "reduce", &n.to_string(), "256", &args, "total");
    let expected = input.iter().sum::<f32>() + 0.5; // whole numbers below 2^23 and a half: exact
    assert_eq!(folder.read("out.npy"), (vec![1], vec![expected]));
    let sum = "np.array([load('in').sum(dtype=np.float64) + 0.5]).astype(np.float32)";
    compare_with_numpy(&folder, "reduce", sum);
}

#[test]
fn double_in_place() {
    let folder = Folder::new();
    let data: Vec<f32> = (0..4097).map(|i| i as f32 / 3.0).collect();
    folder.array("data.npy", &[17, 241], &data);
    let args = [format!("data={}", folder.value("data.npy"))];
    run(&folder, "double_in_place", "4097", "256", &args, "data");
    let expected: Vec<f32> = data.iter().map(|value| value * 2.0).collect();
    assert_eq!(folder.read("out.npy"), (vec![17, 241], expected));
    assert_eq!(folder.read::<f32>("data.npy").1, data, "the input file is left as it is");
    compare_with_numpy(&folder, "double_in_place", "load('data') * np.float32(2)");
}
