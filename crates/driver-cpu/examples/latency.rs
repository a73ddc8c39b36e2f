//! Prints how long a submission takes from `submit` to its callback, and from one to the next.
//!
//! `cargo run --release -p elinvar-driver-cpu --example latency`

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use elinvar_driver::{Command, Dim3, Dispatch, Done, Driver, Grid, PipelineOptions, Result, Source};

const ROUNDS: usize = 20_000;

fn main() -> Result<()> {
    let device = elinvar_driver_cpu::driver().devices()?.remove(0);
    println!("{}, {} workers", device.caps().name, device.caps().limits.compute_units);
    let queue = device.queue()?;
    let (sender, ended) = channel();
    let done = |sender: &Sender<Instant>| -> Done {
        let sender = sender.clone();
        Done::new(move |_| {
            // The receiver lives as long as main.
            let _ = sender.send(Instant::now());
        })
    };
    let library = device.compile(&Source::msl("kernel void nothing() {}"))?;
    let pipeline = library.pipeline("nothing", &PipelineOptions::default())?;
    let group = Dim3::from(32);
    pipeline.prepare(group)?;
    let dispatch = |threads: u32| {
        let (pipeline, threads) = (pipeline.clone(), Dim3::from(threads));
        Command::Dispatch(Dispatch {
            pipeline,
            bindings: vec![],
            uses: vec![],
            grid: Grid::Threads(threads),
            group,
            label: None,
        })
    };
    let cases: [(&str, Arc<[Command]>); 4] = [
        ("no command", Arc::new([])),
        ("1 dispatch of 1 threadgroup", Arc::new([dispatch(32)])),
        ("1 dispatch of 1000 threadgroups", Arc::new([dispatch(32_000)])),
        ("100 dispatches of 1 threadgroup", (0..100).map(|_| dispatch(32)).collect()),
    ];
    for (name, commands) in cases {
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            queue.submit(commands.clone(), done(&sender))?;
            let Ok(end) = ended.recv() else { return Ok(()) };
            times.push((end - begun).as_nanos());
        }
        times.sort_unstable();
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            queue.submit(commands.clone(), done(&sender))?;
        }
        let last = ended.iter().take(ROUNDS).last().map_or(0, |end| (end - begun).as_nanos());
        let each = last / ROUNDS as u128;
        let [median, p99] = [50, 99].map(|percent| times[ROUNDS * percent / 100]);
        println!("{name}: median {median} ns, 99 % {p99} ns; back to back {each} ns each");
    }
    Ok(())
}
