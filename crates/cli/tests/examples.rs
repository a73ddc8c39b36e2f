//! `elinvar run` of each example's kernel from `.npy` files, with every element compared with values computed here (`thread_ids`), and with
//! NumPy's results for the same files (`thread_ids::numpy`).
//!
//! `metrics::prometheus` compares the text of metrics with what Prometheus' Python client reads; `traces::perfetto` reads a trace by
//! Perfetto's schema, of its Python package.
//!
//! If Python has no NumPy, the latter are ignored and the reason is printed; with `ELINVAR_REQUIRE_NUMPY=1`, which `make test` sets, they
//! fail. `ELINVAR_TEST_PYTHON` names the Python.

mod common;
#[path = "common/openmetrics.rs"]
mod openmetrics;
#[path = "common/traces.rs"]
mod traces;

use std::process::Command;

use common::{Folder, elinvar, example};
use libtest_mimic::{Arguments, Failed, Trial};

/// Runs an example's kernel in a folder and compares its output with values computed here.
type Example = fn(&Folder);

/// Each example with the same computation as a NumPy expression, in which `load(name)` is an input file.
const EXAMPLES: &[(&str, Example, &str)] = &[
    ("thread_ids", thread_ids, "np.arange(load('initial').size, dtype=np.uint32)"),
    ("vector_add", vector_add, "load('a') + load('b')"),
    ("scale", scale, "load('in') * np.float32(2.7)"),
    ("matmul", matmul, "load('a') @ load('b')"),
    ("reduce", reduce, "np.array([load('in').sum(dtype=np.float64) + 0.5]).astype(np.float32)"),
    ("double_in_place", double_in_place, "load('data') * np.float32(2)"),
];

fn main() {
    let arguments = Arguments::from_args();
    let python = std::env::var("ELINVAR_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let numpy =
        Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|out| out.status.success());
    let required = std::env::var("ELINVAR_REQUIRE_NUMPY").is_ok_and(|value| value == "1");
    let absent = format!(
        "`{python}` has no NumPy: run `scripts/setup.sh numpy FOLDER` and set ELINVAR_TEST_PYTHON=FOLDER/bin/python3"
    );
    let left_out = !numpy && !required;
    if left_out {
        eprintln!("ignored: comparisons with NumPy, as {absent}");
    }
    let mut trials = Vec::new();
    for (name, example, expression) in EXAMPLES {
        trials.push(Trial::test(*name, || {
            example(&Folder::new());
            Ok(())
        }));
        let (python, absent) = (python.clone(), absent.clone());
        let compare = move || {
            if !numpy {
                return Err(absent.into());
            }
            let folder = Folder::new();
            example(&folder);
            compare_with_numpy(&python, &folder, expression)
        };
        trials.push(Trial::test(format!("{name}::numpy"), compare).with_ignored_flag(left_out));
    }
    let (has_parser, of_metrics) = (openmetrics::is_available(&python), python.clone());
    let read = move || {
        if !has_parser {
            return Err(format!(
                "`{of_metrics}` has no prometheus_client: run `scripts/setup.sh numpy FOLDER`"
            )
            .into());
        }
        openmetrics::read_by_prometheus(&of_metrics);
        Ok(())
    };
    trials.push(Trial::test("metrics::prometheus", read).with_ignored_flag(!has_parser && !required));
    let has_schema = traces::is_available(&python);
    let read = move || {
        if !has_schema {
            return Err(format!("`{python}` has no perfetto: run `scripts/setup.sh numpy FOLDER`").into());
        }
        traces::read_by_perfetto(&python);
        Ok(())
    };
    trials.push(Trial::test("traces::perfetto", read).with_ignored_flag(!has_schema && !required));
    trials.push(Trial::test("traces::chrome", || {
        traces::read_as_json();
        Ok(())
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Runs a kernel; `out.npy` is the content of the argument `out` after the launch.
fn run(folder: &Folder, kernel: &str, grid: &str, group: &str, args: &[String], out: &str) {
    let file = example(kernel);
    let out = format!("{out}={}", folder.file("out.npy").display());
    let mut words = vec!["run", &file, "--kernel", kernel, "--grid", grid, "--group", group, "--out", &out];
    args.iter().for_each(|arg| words.extend(["--arg", arg]));
    elinvar(&words).expect(0, &[]);
}

/// Compares `out.npy` with NumPy's value of `expression`: type, shape and every element.
fn compare_with_numpy(python: &str, folder: &Folder, expression: &str) -> Result<(), Failed> {
    let script = format!(
        "import numpy as np, os, sys\n\
         load = lambda name: np.load(os.path.join(sys.argv[1], name + '.npy'))\n\
         out, expected = load('out'), {expression}\n\
         assert out.dtype == expected.dtype, (out.dtype, expected.dtype)\n\
         assert out.shape == expected.shape, (out.shape, expected.shape)\n\
         assert np.array_equal(out, expected), np.argwhere(out != expected)[:5]\n\
         print(out.size, 'elements equal those of NumPy', np.__version__)\n"
    );
    let output = Command::new(python).arg("-c").arg(script).arg(folder.path()).output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("NumPy differs: {stderr}").into());
    }
    println!("{}", stdout.trim());
    Ok(())
}

fn thread_ids(folder: &Folder) {
    let n = 100_003u32;
    folder.array("initial.npy", &[u64::from(n)], &vec![7u32; n as usize]);
    let args = [format!("out={}", folder.value("initial.npy"))];
    run(folder, "thread_ids", &n.to_string(), "256", &args, "out");
    assert_eq!(folder.read("out.npy"), (vec![u64::from(n)], (0..n).collect::<Vec<u32>>()));
}

fn vector_add(folder: &Folder) {
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
    run(folder, "vector_add", "10240", "256", &args, "out");
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(folder.read("out.npy"), (vec![n], expected));
}

fn scale(folder: &Folder) {
    let input: Vec<f32> = (0..2048).map(|i| i as f32 - 1024.0).collect();
    folder.array("in.npy", &[32, 64], &input);
    let args = [
        format!("in={}", folder.value("in.npy")),
        "out=f32:32x64:random".to_owned(),
        "factor=2.7f32".to_owned(),
    ];
    run(folder, "scale", "2048", "64", &args, "out");
    let expected: Vec<f32> = input.iter().map(|value| value * 2.7).collect();
    assert_eq!(folder.read("out.npy"), (vec![32, 64], expected));
}

fn matmul(folder: &Folder) {
    let (m, n, k) = (61, 67, 59);
    // Small integers: every sum is exact in any order.
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
    run(folder, "matmul", &format!("{n},{m}"), "16,16", &args, "c");
    let element = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    let expected: Vec<f32> = (0..m * n).map(element).collect();
    assert_eq!(folder.read("out.npy"), (vec![m as u64, n as u64], expected));
}

fn reduce(folder: &Folder) {
    let n = 100_003;
    let input: Vec<f32> = (0..n).map(|i| (i % 17) as f32).collect();
    folder.array("in.npy", &[n], &input);
    let args = [
        format!("in={}", folder.value("in.npy")),
        "total=f32:1:0.5".to_owned(),
        format!("n={n}u32"),
        "part=threadgroup:1024".to_owned(),
    ];
    run(folder, "reduce", &n.to_string(), "256", &args, "total");
    let expected = input.iter().sum::<f32>() + 0.5; // whole numbers below 2^23 and a half: exact
    assert_eq!(folder.read("out.npy"), (vec![1], vec![expected]));
}

fn double_in_place(folder: &Folder) {
    let data: Vec<f32> = (0..4097).map(|i| i as f32 / 3.0).collect();
    folder.array("data.npy", &[17, 241], &data);
    let args = [format!("data={}", folder.value("data.npy"))];
    run(folder, "double_in_place", "4097", "256", &args, "data");
    let expected: Vec<f32> = data.iter().map(|value| value * 2.0).collect();
    assert_eq!(folder.read("out.npy"), (vec![17, 241], expected));
    assert_eq!(folder.read::<f32>("data.npy").1, data, "the input file is left as it is");
}
