//! Faults of kernels, detected by bounds checks or by the hardware. After a hardware fault the process can no longer use the device, so
//! each such test runs in a process of its own.

use std::process::Command as Process;
use std::sync::{Arc, Mutex};

use elinvar_driver::{Binding, Dim3, Error, Init, PipelineOptions, Source, Storage};

use crate::bench::{Bench, Test, bound, dispatch, expect_all, fill, signal, slice, submit, wait, words};

pub const TESTS: &[Test] = &[
    ("a_fault_that_checks_note", checked),
    ("an_illegal_address_ends_the_device", |_| in_child("address")),
    ("a_misaligned_address_ends_the_device", |_| in_child("alignment")),
    ("one_of_several_kernels_ends_the_device", |_| in_child("several")),
    ("lines_before_an_illegal_address_arrive", |_| in_child("log")),
];

fn checked(bench: &Bench) {
    let options = PipelineOptions { checked: true, ..PipelineOptions::default() };
    let outside = bench.pipeline_with("outside", &options);
    let (queue, other) = (bench.queue(), bench.queue());
    let event = bench.event();
    let x = bench.memory(4 * 100);
    let launch =
        |n| dispatch(&outside, vec![Binding::Memory(slice(&x, 0, 80))], Dim3::from(n), Dim3::from(32));
    submit(&queue, [launch(20), launch(19)]).wait().unwrap();
    let behind = submit(&other, [wait(&event, 1), fill(&x, 9)]);
    let failed = submit(&queue, [launch(20), launch(21), fill(&x, 7), signal(&event, 1)]);
    let next = submit(&queue, [fill(&x, 8)]);
    let ended = failed.wait();
    let text = match &ended {
        Err(Error::Fault(fault)) => fault.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(
        text.starts_with("kernel `outside` at kernels.metal:7: write to element 20 of argument 0 `x`"),
        "{text}"
    );
    assert!(
        matches!(next.wait(), Err(Error::Poisoned(_))) && matches!(behind.wait(), Err(Error::Poisoned(_)))
    );
    assert!(queue.acknowledge().is_some() && other.acknowledge().is_some());
    expect_all(&words(&x), |i| if i < 20 { i as u32 + 1 } else { 0 });
    submit(&queue, [launch(20)]).wait().unwrap();
}

fn in_child(fault: &str) {
    let program = std::env::current_exe().unwrap();
    let output = Process::new(program).arg(format!("--fault={fault}")).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success() && text.contains("as expected"), "{}\n{text}", output.status);
}

/// The part of a test that runs in a child process.
pub fn child(fault: &str, bench: Bench) {
    if fault == "log" {
        return lines_before_the_end(&bench);
    }
    let (wild, tame) = (bench.pipeline("wild"), bench.pipeline("tame"));
    let (queue, other) = (bench.queue(), bench.queue());
    let (event, gate) = (bench.event(), bench.event());
    let x = bench.memory(4096);
    let far: u64 = if fault == "alignment" { 1 } else { 1 << 46 };
    let bindings = vec![bound(&x), Binding::bytes(&far.to_ne_bytes())];
    let bad = dispatch(&wild, bindings, Dim3::from(32), Dim3::from(32));
    let good = dispatch(&tame, vec![bound(&x)], Dim3::from(1024), Dim3::from(256));
    submit(&queue, [good.clone()]).wait().unwrap();
    let on_host = submit(&other, [wait(&gate, 1), fill(&x, 3)]);
    let commands =
        if fault == "several" { vec![good, bad, signal(&event, 1)] } else { vec![bad, signal(&event, 1)] };
    let failed = submit(&queue, commands);
    let ended = failed.wait();
    println!("{ended:?}");
    match (&ended, fault) {
        (Err(Error::DeviceLost(text)), "several") => {
            assert!(text.contains("`tame`, `wild`"), "{text}");
        }
        (Err(Error::Fault(fault)), _) => assert_eq!(fault.kernel, "wild"),
        _ => panic!("{ended:?}"),
    }
    let waited = on_host.wait();
    assert!(matches!(waited, Err(Error::DeviceLost(_))), "{waited:?}");
    assert!(event.failure().is_some());
    assert!(queue.acknowledge().is_some());
    let refused =
        queue.submit(Arc::from([fill(&x, 1)]), elinvar_driver::Done::new(|_| panic!("it is refused"))).err();
    assert!(matches!(&refused, Some(Error::DeviceLost(text)) if text.contains("wild")), "{refused:?}");
    let refused = bench.device.allocate(100, Storage::Private, Init::Zeroed).err();
    assert!(matches!(refused, Some(Error::DeviceLost(_))), "{refused:?}");
    let reset = bench.device.reset();
    assert!(matches!(&reset, Err(Error::Unsupported(text)) if text.contains("new process")), "{reset:?}");
    assert!(bench.device.queue().is_err());
    println!("as expected");
}

/// The log's ring is readable when the context is destroyed.
fn lines_before_the_end(bench: &Bench) {
    let text = "#include <metal_stdlib>
        kernel void wild(constant ulong& far, uint i [[thread_position_in_grid]]) {
            for (uint k = 0; k < 100; ++k) printf(\"%u %u\", i, k);
            *reinterpret_cast<device uint*>(far) = i;
        }";
    let library = bench.device.compile(&Source::named("wild.metal", text)).unwrap();
    let wild = library.pipeline("wild", &PipelineOptions::default()).unwrap();
    let log = bench.device.log().unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let to = lines.clone();
    log.subscribe(Arc::new(move |line| {
        let numbers = line.message.split(' ').map(|word| word.parse::<u32>().unwrap());
        to.lock().unwrap().push((line.thread.unwrap()[0], numbers.collect::<Vec<_>>()));
    }));
    let far = Binding::bytes(&(1_u64 << 46).to_ne_bytes());
    let queue = bench.queue();
    let failed = submit(&queue, [dispatch(&wild, vec![far], Dim3::from(32), Dim3::from(32))]);
    let ended = failed.wait();
    assert!(matches!(&ended, Err(Error::Fault(fault)) if fault.kernel == "wild"), "{ended:?}");
    let lines = lines.lock().unwrap();
    let mut next = [0_u32; 32];
    for (thread, numbers) in &*lines {
        let next = &mut next[*thread as usize];
        assert_eq!(numbers[..], [*thread, *next]);
        *next += 1;
    }
    assert!(next.contains(&100), "a thread that has faulted: {next:?}");
    assert_eq!(log.lost(), 0);
    println!("as expected");
}
