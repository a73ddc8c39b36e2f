//! Log calls that Metal has as well: `os_log`, without names of kernels and threads, which Metal does not report.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use elinvar::{Device, Grid, LogLevel, LogLine};

use super::logging::{TURN, kernel};
use super::{CaseResult, expect_all, run};

cases!("os_log": lines, launches, no_lines);

/// Time within which Metal passes on lines, for which it promises none.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lines of this category while `f` runs: `count` of them, unless there are more.
fn lines_of(
    device: &Device,
    category: &'static str,
    count: usize,
    f: impl FnOnce() -> CaseResult,
) -> Result<Vec<LogLine>, super::Failure> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let to = seen.clone();
    let subscription = device.on_log(move |line| {
        if *line.category == *category {
            to.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
        }
    })?;
    f()?;
    let begin = Instant::now();
    while seen.lock().unwrap_or_else(PoisonError::into_inner).len() < count && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(subscription);
    let lines = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(lines)
}

/// Message, level and subsystem of each line, in order.
fn sorted(lines: &[LogLine]) -> Vec<(&str, LogLevel, &str)> {
    let mut found: Vec<_> =
        lines.iter().map(|line| (line.message.trim_end(), line.level, &*line.subsystem)).collect();
    found.sort_unstable();
    found
}

fn lines(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "os_log_lines",
        "#include <metal_logging>
        constant os_log custom(\"com.example.app\", \"os_log_lines\");
        kernel void os_log_lines(device float* x, uint i [[thread_position_in_grid]]) {
            if (i % 16 == 0) custom.log_error(\"%u: %.2f\", i, x[i]);
            if (i == 5) { custom.log_debug(\"d\"); custom.log_info(\"i %d\", -int(i)); custom.log(\"n\"); custom.log_fault(\"f %x\", 255); }
            x[i] += 1;
        }",
    )?;
    let x: Vec<f32> = (0..64).map(|i| i as f32 * 0.5).collect();
    let mut x = device.buffer_with_data(&x)?;
    let before = device.delivered_log_lines();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = lines_of(device, "os_log_lines", 8, || {
        Ok(run(device, &kernel, Grid::threads(64).group(32), (&mut x,))?)
    })?;
    expect_all(&x.to_vec()?, |i| i as f32 * 0.5 + 1.0);
    let of = "com.example.app";
    let expected = [
        ("0: 0.00", LogLevel::Error, of),
        ("16: 8.00", LogLevel::Error, of),
        ("32: 16.00", LogLevel::Error, of),
        ("48: 24.00", LogLevel::Error, of),
        ("d", LogLevel::Debug, of),
        ("f ff", LogLevel::Fault, of),
        ("i -5", LogLevel::Info, of),
        ("n", LogLevel::Notice, of),
    ];
    assert_eq!(sorted(&lines), expected);
    assert!(device.delivered_log_lines() >= before + 8);
    Ok(())
}

/// Lines of each launch, also of several in flight, and of a second kernel.
fn launches(device: &Device) -> CaseResult {
    let body = |name: &str| {
        format!(
            "#include <metal_logging>
            constant os_log own(\"s\", \"os_log_launches\");
            kernel void {name}(device uint* x, constant uint& n, uint i [[thread_position_in_grid]]) {{
                own.log(\"{name} %u %u\", n, i); x[i] = n + i;
            }}"
        )
    };
    let kernels =
        [kernel(device, "os_log_a", &body("os_log_a"))?, kernel(device, "os_log_b", &body("os_log_b"))?];
    let mut x = device.buffer::<u32>(8)?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let lines = lines_of(device, "os_log_launches", 80, || {
        for n in 0..10_u32 {
            run(device, &kernels[n as usize % 2], Grid::threads(8), (&mut x, n))?;
        }
        Ok(())
    })?;
    expect_all(&x.to_vec()?, |i| 9 + i as u32);
    let mut expected: Vec<String> = (0..10_usize)
        .flat_map(|n| (0..8).map(move |i| format!("os_log_{} {n} {i}", ["a", "b"][n % 2])))
        .collect();
    expected.sort();
    assert_eq!(sorted(&lines).iter().map(|line| line.0).collect::<Vec<_>>(), expected);
    Ok(())
}

/// Kernels without log calls, beside those that have some.
fn no_lines(device: &Device) -> CaseResult {
    let plain = super::kernel(device, "plain", "kernel void plain(device uint* x) { x[0] = 7; }")?;
    let mut x = device.buffer::<u32>(1)?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let lines =
        lines_of(device, "os_log_lines", 0, || Ok(run(device, &plain, Grid::threads(1), (&mut x,))?))?;
    assert_eq!((lines.len(), x.to_vec()?), (0, vec![7]));
    Ok(())
}
