//! Batches: every threadgroup of every member runs once, members run at the same time, and a fault names its member.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use elinvar_driver::{Binding, Command, Dispatch, Error, Memory, MemorySlice, Pipeline, Result};

use crate::batch::Batch;
use crate::pool::{Pool, Worker};
use crate::stop::Stop;
use crate::testing::{COUNT, FAULT, GATE, bound, device, dispatch, memory, pipeline};

/// Collects dispatches with their index as tag and runs them, on a worker of the pool. A place is the tag.
fn run(pool: &Pool, dispatches: Vec<Dispatch>) -> Result<()> {
    let (sender, outcome) = channel();
    let stop = Arc::new(Stop::default());
    let place = |[index, other]: [u32; 2]| format!("member {index}, {other}");
    let collect = move |worker: &mut Worker| {
        let mut batch = Batch::default();
        for (index, dispatch) in (0..).zip(&dispatches) {
            if let Err(error) = batch.push(dispatch, [index, 7], (&stop, worker), place) {
                return Err(batch.run_before(error, worker, place));
            }
        }
        batch.run(worker, place)?;
        // There is nothing left.
        batch.run(worker, place)
    };
    pool.push(move |worker| sender.send(collect(worker)).unwrap());
    outcome.recv().unwrap()
}

fn of(command: Command) -> Dispatch {
    match command {
        Command::Dispatch(dispatch) => dispatch,
        other => panic!("{other:?}"),
    }
}

#[allow(unsafe_code)] // reads driver memory
fn words(memory: &Arc<dyn Memory>) -> Vec<u32> {
    let mut bytes = vec![0; memory.len() as usize];
    // SAFETY: nothing uses the memory any more.
    unsafe { memory.read(0, &mut bytes) }.unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn every_threadgroup_of_every_member_runs_once() {
    let (device, count) = (device(1), pipeline(COUNT));
    for workers in [1, 2, 5] {
        let pool = Pool::new(workers).unwrap();
        // More than fit into one batch; some are empty.
        let members = 700_u64;
        let counts = memory(&device, members as usize * 40);
        let part =
            |index| Binding::Memory(MemorySlice { memory: counts.clone(), offset: index * 40, len: 40 });
        for round in 1..=3 {
            let member = |index: u64| of(dispatch(&count, index as u32 % 11, vec![part(index)]));
            run(&pool, (0..members).map(member).collect()).unwrap();
            for (at, value) in words(&counts).into_iter().enumerate() {
                let expected = if at % 10 < at / 10 % 11 { round } else { 0 };
                assert_eq!(value, expected, "threadgroup {} of member {}", at % 10, at / 10);
            }
        }
    }
}

/// The first member waits for the second, which ends only if another worker runs it meanwhile.
#[test]
fn members_run_at_the_same_time() {
    let (device, gate, open) = (device(1), pipeline(GATE), pipeline(COUNT));
    let pool = Pool::new(2).unwrap();
    for pipeline in [&gate, &open] {
        let pipeline: &dyn std::any::Any = &**pipeline;
        let pipeline = pipeline.downcast_ref::<crate::kernel::CpuPipeline>().unwrap();
        // As if it had taken long, which is worth sharing.
        pipeline.kernel(1.into(), 0).unwrap().group_ns.store(1_000_000, Ordering::Relaxed);
    }
    let flag = memory(&device, 4);
    let members =
        [&gate, &open].map(|pipeline: &Arc<dyn Pipeline>| of(dispatch(pipeline, 1, vec![bound(&flag)])));
    run(&pool, members.into()).unwrap();
    assert_eq!(words(&flag), [1]);
}

#[test]
fn a_fault_names_its_member() {
    let (device, fault) = (device(1), pipeline(FAULT));
    let (count, bad) = (memory(&device, 4), memory(&device, 8));
    let pool = Pool::new(3).unwrap();
    let last = |index: u64| Binding::bytes(&index.to_ne_bytes());
    // Group 4 fails, which only member 5 has.
    let member =
        |index: u32| of(dispatch(&fault, if index == 5 { 6 } else { 3 }, vec![bound(&count), last(4)]));
    let ended = run(&pool, (0..20).map(member).collect());
    let Err(Error::Fault(failed)) = ended else { panic!("{ended:?}") };
    assert!(failed.message.starts_with("member 5, 7: "), "{failed}");
    assert!(words(&count)[0] < 63);
    // What is refused leaves those before it.
    let before = words(&count)[0];
    let mut wrong = member(1);
    wrong.bindings[0] = Binding::Memory(MemorySlice { memory: bad, offset: 4, len: 8 });
    let ended = run(&pool, vec![member(0), wrong, member(2)]);
    assert!(matches!(ended, Err(Error::InvalidArgument(_))), "{ended:?}");
    assert_eq!(words(&count)[0], before + 3);
}
