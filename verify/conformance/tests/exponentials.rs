//! Exponential functions, as compiled: within 1.02 units in the last place of the exact value (`exp10`: 1.21), also where results are subnormal, and the same
//! bits on every processor and for every vector width. AVX-512 scales by a power of two in one instruction, other code in two products.
//!
//! The test program is its own child process, for a processor and a number of lanes from the environment.

use std::process::Command;

use elinvar::{Device, Grid, Kernel, Source};

const CHILD: &str = "ELINVAR_TEST_EXPONENTIALS";
const QUICK: &str = "are_exact_to_a_unit_and_the_same_on_every_processor";
/// Inputs of a launch.
const MANY: u64 = 1 << 22;
/// Step between the inputs of the quick test, as bits: a prime, so that all low bits occur.
const STEP: u64 = 4099;

/// A function, its value in `f64`, the largest error in units in the last place, and the inputs beyond which it is 0 or infinite.
struct Function {
    text: &'static str,
    exact: Option<fn(f64) -> f64>,
    units: f64,
    range: [f32; 2],
}

const fn of(text: &'static str, exact: fn(f64) -> f64, units: f64, range: [f32; 2]) -> Function {
    Function { text, exact: Some(exact), units, range }
}

/// A function that is compared between processors only.
const fn same(text: &'static str) -> Function {
    Function { text, exact: None, units: 0.0, range: [0.0; 2] }
}

const FUNCTIONS: [Function; 9] = [
    of("exp(x)", f64::exp, 1.02, [-104.0, 88.8]),
    of("exp2(x)", f64::exp2, 1.02, [-150.1, 128.1]),
    of("exp10(x)", |x| 10f64.powf(x), 1.21, [-45.2, 38.6]),
    of("fast::exp(x)", f64::exp, 1.02, [-104.0, 88.8]),
    of("fast::exp2(x)", f64::exp2, 1.02, [-150.1, 128.1]),
    same("sinh(x)"),
    same("cosh(x)"),
    same("tanh(x)"),
    same("pow(1.7f, x)"),
];
/// The number of those that the test of all inputs has.
const OF_ALL: usize = 3;

/// A kernel with the function's values of inputs that are given as bits.
fn kernel(device: &Device, function: &Function) -> Kernel {
    let text = format!(
        "#include <metal_stdlib>\nusing namespace metal;\n\
         kernel void values(device const uint* in [[buffer(0)]], device float* out [[buffer(1)]],\n\
         uint i [[thread_position_in_grid]]) {{ float x = as_type<float>(in[i]); out[i] = {}; }}",
        function.text
    );
    device.compile(Source::msl(&text)).unwrap().kernel("values").unwrap()
}

/// The distance of a result from the exact value in units of the latter's last place, that of subnormal numbers being 2⁻¹⁴⁹. Infinity
/// counts as 2¹²⁸.
fn error(got: f32, exact: f64) -> f64 {
    let most = 2f64.powi(128);
    let exact = exact.min(most);
    let got = if got == f32::INFINITY { most } else { f64::from(got) };
    // The exponent of a normal number of f64.
    let exponent = ((exact.to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (got - exact).abs() / 2f64.powi(exponent - 23)
}

impl Function {
    fn error(&self, x: f32, got: f32) -> f64 {
        let Some(exact) = self.exact else { return 0.0 };
        let expected = if x.is_nan() {
            return if got.is_nan() { 0.0 } else { f64::INFINITY };
        } else if x > self.range[1] {
            f32::INFINITY
        } else if x < self.range[0] {
            0.0
        } else if x.abs() < 1e-8 {
            1.0
        } else {
            return error(got, exact(f64::from(x)));
        };
        if got.to_bits() == expected.to_bits() { 0.0 } else { f64::INFINITY }
    }
}

/// Every 4099th number and what is next to where a function or its inputs change: powers of two, infinities, zeros, NaNs, and the inputs
/// whose results are the largest, the least normal and the least subnormal ones.
fn sample() -> Vec<u32> {
    let mut inputs: Vec<u32> = (0..1_u64 << 32).step_by(STEP as usize).map(|bits| bits as u32).collect();
    let ends =
        [88.72284, 128.0, 38.53184, -87.33655, -126.0, -37.92978, -103.97208, -149.0, -150.0, -45.1545];
    let ends = ends.into_iter().map(f32::to_bits);
    let powers = (0..=0x1ff_u32).map(|power| power << 23);
    for end in powers.chain(ends) {
        inputs.extend((-64..=64).map(|off: i32| end.wrapping_add_signed(off)));
    }
    inputs
}

/// The largest error over `inputs`, and a hash of all results, in which all NaNs are one.
fn measure(
    device: &Device,
    function: &Function,
    inputs: &mut dyn Iterator<Item = Vec<u32>>,
    check: bool,
) -> String {
    let (kernel, stream) = (kernel(device, function), device.stream().unwrap());
    let (mut hash, mut worst, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0.0, 0.0);
    for inputs in inputs {
        let (given, mut out) =
            (device.buffer_with_data(&inputs).unwrap(), device.buffer(inputs.len()).unwrap());
        // SAFETY: the kernel reads and writes one element per thread, and both buffers have as many.
        #[allow(unsafe_code)]
        let launched = unsafe { kernel.launch(&stream, Grid::threads(inputs.len()), (&given, &mut out)) };
        launched.unwrap().wait().unwrap();
        let results: Vec<f32> = out.to_vec().unwrap();
        let mut i = 0;
        while i < results.len() {
            let got = results[i];
            let bits = if got.is_nan() { 0x7fc0_0000 } else { got.to_bits() };
            hash = (hash ^ u64::from(bits)).wrapping_mul(0x0100_0000_01b3);
            if check {
                let x = f32::from_bits(inputs[i]);
                let error = function.error(x, got);
                if error > worst {
                    (worst, at) = (error, x);
                }
            }
            i += 1;
        }
    }
    assert!(worst <= function.units, "{}: {worst} units at {at:e}", function.text);
    if check {
        eprintln!("{}: at most {worst:.4} units, at {at:e}", function.text);
    }
    format!("{} {hash:016x}", function.text)
}

/// Prints a line for each function. With `all` it is given every number.
fn child(all: bool, check: bool) {
    let device = Device::cpu().unwrap();
    let count = if all { OF_ALL } else { FUNCTIONS.len() };
    for function in &FUNCTIONS[..count] {
        let mut every = (0..1_u64 << 32)
            .step_by(MANY as usize)
            .map(|first| (first..first + MANY).map(|bits| bits as u32).collect());
        let mut some = [sample()].into_iter();
        let inputs: &mut dyn Iterator<Item = Vec<u32>> = if all { &mut every } else { &mut some };
        println!("\nresult {}", measure(&device, function, inputs, check));
    }
}

/// The lines of a child for a processor and a number of lanes; `None` for those of this machine.
fn run(test: &str, work: &str, processor: Option<&str>, lanes: Option<&str>) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env(CHILD, work);
    command.env_remove("ELINVAR_CPU_TARGET").env_remove("ELINVAR_CPU_LANES");
    command.envs(processor.map(|name| ("ELINVAR_CPU_TARGET", name)));
    command.envs(lanes.map(|lanes| ("ELINVAR_CPU_LANES", lanes)));
    let output = command.output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{processor:?} {lanes:?}: {said}{why}");
    eprint!("{why}");
    said.lines().filter(|line| line.starts_with("result ")).map(str::to_owned).collect()
}

/// Processors of this architecture that this machine can stand for.
fn others() -> Vec<&'static str> {
    let mut others = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        others.push("x86-64");
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            others.push("x86-64-v3");
        }
    }
    others
}

fn compare(test: &str, work: [&str; 2], lanes: &[&'static str], others: &[&'static str]) {
    let here = run(test, work[0], None, None);
    assert!(here.len() >= OF_ALL, "{here:?}");
    for lanes in lanes {
        assert_eq!(run(test, work[1], None, Some(lanes)), here, "{lanes} lanes");
    }
    for other in others {
        assert_eq!(run(test, work[1], Some(other), None), here, "{other}");
    }
}

#[test]
fn are_exact_to_a_unit_and_the_same_on_every_processor() {
    if let Some(work) = std::env::var_os(CHILD) {
        return child(false, work == "check");
    }
    compare(QUICK, ["check", "hash"], &["1", "4", "32"], &others());
}

#[test]
#[ignore = "2³² inputs of three functions: minutes"]
fn are_so_for_every_number() {
    if let Some(work) = std::env::var_os(CHILD) {
        return child(true, work == "check");
    }
    let fused = others().into_iter().rfind(|other| *other != "x86-64");
    compare("are_so_for_every_number", ["check", "hash"], &[], fused.as_slice());
}

#[test]
fn errors_are_found() {
    let exp = &FUNCTIONS[0];
    assert_eq!(exp.error(1.0, std::f32::consts::E.next_up().next_up()).floor(), 1.0, "two numbers off");
    // e^-90 is subnormal.
    let subnormal = (-90f64).exp() as f32;
    assert!(subnormal.is_subnormal() && exp.error(-90.0, subnormal) <= 0.5 && exp.error(-90.0, 0.0) > 1e5);
    assert!(exp.error(f32::NAN, 1.0) > 1e9 && exp.error(88.7, f32::INFINITY) > 1e5);
    assert!(exp.error(-200.0, 1e-45) > 1e9 && exp.error(1e-30, 1.0f32.next_up()) > 1e9);
}
