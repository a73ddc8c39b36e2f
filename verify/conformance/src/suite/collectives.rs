//! Collectives of several members, each with a stream: every one with every type, reduction and odd sizes, between kernels, and failures.
//!
//! The members have all devices of a kind, or one device three times.

use std::time::Duration;

use elinvar::{
    Buffer, Communicator, Device, Error, Graph, Grid, HostAccess, Operation, Pod, Reduction, Stream, bf16,
    f16,
};

use super::{CaseResult, GroupCase, expect_all, kernel, launch, refused};

/// Cases for several devices.
pub(super) const CASES: &[GroupCase] = &[
    GroupCase { name: "collectives::reductions_of_integers", run: reductions_of_integers },
    GroupCase { name: "collectives::reductions_of_floats", run: reductions_of_floats },
    GroupCase { name: "collectives::movements", run: movements },
    GroupCase { name: "collectives::slices_and_large_buffers", run: slices_and_large_buffers },
    GroupCase { name: "collectives::between_kernels", run: between_kernels },
    GroupCase { name: "collectives::in_graphs", run: in_graphs },
    GroupCase { name: "collectives::in_one_graph", run: in_one_graph },
    GroupCase {
        name: "collectives::a_graph_that_fails_names_the_member",
        run: a_graph_that_fails_names_the_member,
    },
    GroupCase { name: "collectives::invalid_operations", run: invalid_operations },
    GroupCase { name: "collectives::a_member_that_fails_is_named", run: a_member_that_fails_is_named },
    GroupCase {
        name: "collectives::a_member_that_hangs_is_left_behind",
        run: a_member_that_hangs_is_left_behind,
    },
];

/// A number of a type that can be reduced.
trait Number: Pod + PartialEq + std::fmt::Debug {
    fn from(value: i64) -> Self;
    /// The value as the type sees it: that of an unsigned type is not negative.
    fn seen(value: i64) -> i128;
}

macro_rules! number {
    ($($type:ty),*) => {
        $(impl Number for $type {
            fn from(value: i64) -> Self {
                value as Self
            }

            fn seen(value: i64) -> i128 {
                (value as Self) as i128
            }
        })*
    };
}

number!(i8, u8, i16, u16, i32, u32, i64, u64, f32);

macro_rules! half {
    ($($type:ty),*) => {
        $(impl Number for $type {
            fn from(value: i64) -> Self {
                Self::from_f32(value as f32)
            }

            fn seen(value: i64) -> i128 {
                value.into()
            }
        })*
    };
}

half!(f16, bf16);

/// A member with its stream.
struct Member {
    communicator: Communicator,
    stream: Stream,
}

impl Member {
    fn device(&self) -> &Device {
        self.communicator.device()
    }

    fn rank(&self) -> u32 {
        self.communicator.rank()
    }
}

fn members(devices: &[Device]) -> elinvar::Result<Vec<Member>> {
    let all = Communicator::all(devices)?;
    for (at, member) in all.iter().enumerate() {
        assert_eq!((member.rank() as usize, member.size() as usize), (at, devices.len()));
    }
    all.into_iter()
        .map(|communicator| Ok(Member { stream: communicator.device().stream()?, communicator }))
        .collect()
}

/// Element `i` of the source of a rank: a small number, so that floating-point results are exact in every order. Products are of powers of two.
fn value(reduction: Option<Reduction>, rank: u32, i: usize) -> i64 {
    let mixed = (rank as usize * 7 + i * 13 + i / 11) % 17;
    match reduction {
        Some(Reduction::Product) => [1, 2, 1][mixed % 3],
        // So that sums of 64 members are exact in `bf16`, which has eight bits.
        _ if rank >= 8 => mixed as i64 % 3 - 1,
        _ => mixed as i64 - 3,
    }
}

fn source<T: Number>(reduction: Option<Reduction>, rank: u32, count: usize) -> Vec<T> {
    (0..count).map(|i| T::from(value(reduction, rank, i))).collect()
}

/// Element `i` of the reduction over `size` members, computed without rounding and overflow.
fn reduced<T: Number>(reduction: Reduction, size: u32, i: usize) -> T {
    let values = (0..size).map(|rank| T::seen(value(Some(reduction), rank, i)));
    let result = match reduction {
        Reduction::Sum => values.sum::<i128>(),
        Reduction::Product => values.product(),
        Reduction::Min => values.min().unwrap_or_default(),
        Reduction::Max => values.max().unwrap_or_default(),
    };
    T::from(result as i64)
}

/// Every reduction of a type, submitted by all members before any is waited for.
fn reductions<T: Number>(members: &[Member]) -> CaseResult {
    let size = members.len() as u32;
    for reduction in Reduction::ALL {
        for count in [1, 3, 1009] {
            let root = (count as u32 + 1) % size;
            let mut results: Vec<[Buffer<T>; 4]> = Vec::new();
            for member in members {
                let (device, rank) = (member.device(), member.rank());
                let data = source::<T>(Some(reduction), rank, count * size as usize);
                let wide = device.buffer_with_data(&data)?;
                let mut in_place = device.buffer_with_data(&data[..count])?;
                let target = || device.buffer_for::<T>(count, HostAccess::Never);
                let (mut all, mut one, mut part) = (target()?, target()?, target()?);
                let submit = |operation: Operation<'_>| {
                    member.stream.collective(&member.communicator, operation).map(drop)
                };
                submit(Operation::all_reduce(reduction, wide.slice(0..count)?, &mut all))?;
                let target = if rank == root { Some((&mut one).into()) } else { None };
                submit(Operation::reduce(root, reduction, wide.slice(0..count)?, target))?;
                submit(Operation::reduce_scatter(reduction, &wide, &mut part))?;
                submit(Operation::all_reduce_in_place(reduction, &mut in_place))?;
                results.push([all, one, part, in_place]);
            }
            for (rank, [all, one, part, in_place]) in results.iter().enumerate() {
                expect_all(&all.to_vec()?, |i| reduced::<T>(reduction, size, i));
                expect_all(&in_place.to_vec()?, |i| reduced::<T>(reduction, size, i));
                expect_all(&part.to_vec()?, |i| reduced::<T>(reduction, size, rank * count + i));
                if rank as u32 == root {
                    expect_all(&one.to_vec()?, |i| reduced::<T>(reduction, size, i));
                }
            }
        }
    }
    Ok(())
}

fn reductions_of_integers(devices: &[Device]) -> CaseResult {
    let members = members(devices)?;
    reductions::<i8>(&members)?;
    reductions::<u8>(&members)?;
    reductions::<i32>(&members)?;
    reductions::<u32>(&members)?;
    reductions::<i64>(&members)?;
    reductions::<u64>(&members)?;
    // NCCL has no numbers of 16 bits.
    match members[0].communicator.engine() {
        "nccl" => {
            let mut x = members[0].device().buffer::<i16>(1)?;
            let operation = Operation::all_reduce_in_place(Reduction::Sum, &mut x);
            refused(members[0].stream.collective(&members[0].communicator, operation), "NCCL");
            Ok(())
        }
        _ => reductions::<i16>(&members).and_then(|()| reductions::<u16>(&members)),
    }
}

fn reductions_of_floats(devices: &[Device]) -> CaseResult {
    let members = members(devices)?;
    reductions::<f32>(&members)?;
    reductions::<f16>(&members)?;
    reductions::<bf16>(&members)
}

/// Everything that moves elements without reducing them, also of types that are no numbers.
fn movements(devices: &[Device]) -> CaseResult {
    let members = members(devices)?;
    moved::<u8>(&members)?;
    moved::<u16>(&members)?;
    moved::<f32>(&members)?;
    moved::<u64>(&members)
}

fn moved<T: Number>(members: &[Member]) -> CaseResult {
    let size = members.len();
    for count in [1, 7, 1021] {
        let root = (count + 1) % size;
        let of = |rank: usize, i: usize| T::from(value(None, rank as u32, i));
        let mut results = Vec::new();
        for member in members {
            let (device, rank) = (member.device(), member.rank() as usize);
            let wide = device.buffer_with_data(&source::<T>(None, rank as u32, count * size))?;
            let mut broadcast = device.buffer_with_data(&source::<T>(None, rank as u32, count))?;
            let (mut all, mut turned) =
                (device.buffer::<T>(count * size)?, device.buffer::<T>(count * size)?);
            let (mut gathered, mut scattered) =
                (device.buffer::<T>(count * size)?, device.buffer::<T>(count)?);
            let mut received = device.buffer::<T>(count)?;
            let submit = |operation: Operation<'_>| {
                member.stream.collective(&member.communicator, operation).map(drop)
            };
            let root_rank = root as u32;
            submit(Operation::broadcast(root_rank, &mut broadcast))?;
            submit(Operation::all_gather(wide.slice(0..count)?, &mut all))?;
            submit(Operation::all_to_all(&wide, &mut turned))?;
            submit(Operation::gather(
                root_rank,
                wide.slice(0..count)?,
                (rank == root).then(|| (&mut gathered).into()),
            ))?;
            submit(Operation::scatter(root_rank, (rank == root).then(|| (&wide).into()), &mut scattered))?;
            // From each even rank to the next one.
            if rank % 2 == 0 && rank + 1 < size {
                submit(Operation::send(rank as u32 + 1, wide.slice(0..count)?))?;
            } else if rank % 2 == 1 {
                submit(Operation::receive(rank as u32 - 1, &mut received))?;
            }
            submit(Operation::barrier())?;
            results.push((broadcast, all, turned, gathered, scattered, received));
        }
        for (rank, (broadcast, all, turned, gathered, scattered, received)) in results.iter().enumerate() {
            expect_all(&broadcast.to_vec()?, |i| of(root, i));
            expect_all(&all.to_vec()?, |i| of(i / count, i % count));
            expect_all(&turned.to_vec()?, |i| of(i / count, rank * count + i % count));
            let zero = T::from(0);
            expect_all(&gathered.to_vec()?, |i| if rank == root { of(i / count, i % count) } else { zero });
            expect_all(&scattered.to_vec()?, |i| of(root, rank * count + i));
            expect_all(&received.to_vec()?, |i| if rank % 2 == 1 { of(rank - 1, i) } else { zero });
        }
    }
    Ok(())
}

/// Offsets that are aligned to the element only, and data of several megabytes; the bytes around the target are preserved.
fn slices_and_large_buffers(devices: &[Device]) -> CaseResult {
    let members = members(devices)?;
    let size = members.len() as u32;
    for (begin, count) in [(1, 1), (3, 4099), (5, (1 << 20) + 3)] {
        let mut results = Vec::new();
        for member in &members {
            let x = member.device().buffer_with_data(&source::<u32>(
                Some(Reduction::Sum),
                member.rank(),
                begin + count,
            ))?;
            let mut y = member.device().buffer_for::<u32>(count + 2 * begin, HostAccess::Never)?;
            member.stream.fill(&mut y, 77)?;
            let (from, to) = (x.slice(begin..begin + count)?, y.slice_mut(begin..begin + count)?);
            member
                .stream
                .collective(&member.communicator, Operation::all_reduce(Reduction::Sum, from, to))?;
            results.push(y);
        }
        for y in results {
            let inside = begin..begin + count;
            expect_all(&y.to_vec()?, |i| {
                if inside.contains(&i) { reduced::<u32>(Reduction::Sum, size, i) } else { 77 }
            });
        }
    }
    Ok(())
}

/// The source is the result of a kernel, and the target the input of the next one; nothing waits in between.
fn between_kernels(devices: &[Device]) -> CaseResult {
    const N: usize = 10_007;
    let text = "kernel void step(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]],
        constant uint& k [[buffer(2)]], uint i [[thread_position_in_grid]]) { y[i] = x[i] * 3u + k + i; }";
    let members = members(devices)?;
    let size = members.len() as u32;
    let mut results = Vec::new();
    for member in &members {
        let (device, rank) = (member.device(), member.rank());
        let step = kernel(device, "step", text)?;
        let x = device.buffer_with_data(&source::<u32>(None, rank, N))?;
        let [mut a, mut b] = [
            device.buffer_for::<u32>(N, HostAccess::Never)?,
            device.buffer_for::<u32>(N, HostAccess::Never)?,
        ];
        let mut out = device.buffer::<u32>(N)?;
        launch(&step, &member.stream, Grid::threads(N), (&x, &mut a, rank))?;
        for _ in 0..3 {
            let mut commands = member.stream.command_buffer();
            commands.collective(&member.communicator, Operation::all_reduce(Reduction::Sum, &a, &mut b))?;
            commands.copy(&b, &mut a)?;
            commands.submit()?;
        }
        launch(&step, &member.stream, Grid::threads(N), (&b, &mut out, 5_u32))?;
        results.push(out);
    }
    let first =
        |rank: u32, i: usize| (value(None, rank, i) as u32).wrapping_mul(3).wrapping_add(rank + i as u32);
    for out in results {
        expect_all(&out.to_vec()?, |i| {
            let sum = (0..size).fold(0_u32, |sum, rank| sum.wrapping_add(first(rank, i)));
            sum.wrapping_mul(size * size).wrapping_mul(3).wrapping_add(5 + i as u32)
        });
    }
    Ok(())
}

const STEP: &str = "kernel void step(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]],
    constant uint& k [[buffer(2)]], uint i [[thread_position_in_grid]]) { y[i] = x[i] * 3u + k + i; }";

/// Adds the work of one member: a kernel, sums of its result twice, a kernel. Returns the buffer that is both input and result.
#[allow(unsafe_code)] // a launch
fn add_work(graph: &mut Graph, member: &Member, count: usize) -> elinvar::Result<Buffer<u32>> {
    let (device, rank) = (member.device(), member.rank());
    let step = kernel(device, "step", STEP)?;
    let mut x = device.buffer_with_data(&source::<u32>(None, rank, count))?;
    let (mut a, mut b) = (device.buffer::<u32>(count)?, device.buffer::<u32>(count)?);
    // SAFETY: each thread has its elements.
    unsafe { graph.launch(&step, Grid::threads(count), (&x, &mut a, rank)) }?;
    graph.collective(&member.communicator, Operation::all_reduce(Reduction::Sum, &a, &mut b))?;
    graph.collective(&member.communicator, Operation::all_reduce_in_place(Reduction::Max, &mut b))?;
    let barrier = graph.collective(&member.communicator, Operation::barrier())?;
    graph.name(barrier, "all")?;
    // SAFETY: as above.
    unsafe { graph.launch(&step, Grid::threads(count), (&b, &mut x, 5_u32)) }?;
    Ok(x)
}

/// Element `i` after some runs of that work.
fn expected_of_work(size: u32, runs: usize, i: usize) -> u32 {
    let step = |x: u32, k: u32| x.wrapping_mul(3).wrapping_add(k + i as u32);
    let mut all: Vec<u32> = (0..size).map(|rank| value(None, rank, i) as u32).collect();
    for _ in 0..runs {
        let sum = (0..).zip(&all).fold(0_u32, |sum, (rank, x)| sum.wrapping_add(step(*x, rank)));
        all.fill(step(sum, 5));
    }
    all[0]
}

/// A graph for each member, run several times without a wait in between.
#[allow(unsafe_code)] // runs
fn in_graphs(devices: &[Device]) -> CaseResult {
    const RUNS: usize = 4;
    let members = members(devices)?;
    for count in [1, 1009] {
        let mut plans = Vec::new();
        for member in &members {
            let mut graph = Graph::new();
            let x = add_work(&mut graph, member, count)?;
            assert_eq!(graph.len(), 5);
            plans.push((graph.plan()?, x));
        }
        for _ in 0..RUNS {
            for (member, (plan, _)) in members.iter().zip(&mut plans) {
                // SAFETY: as declared for the launches.
                unsafe { plan.run(&member.stream) }?;
            }
        }
        for (plan, x) in plans {
            expect_all(&x.to_vec()?, |i| expected_of_work(members.len() as u32, RUNS, i));
            assert!(plan.stats().removed.is_empty(), "{:?}", plan.stats().removed);
        }
    }
    Ok(())
}

/// All members in one graph, if they have different devices.
#[allow(unsafe_code)] // runs
fn in_one_graph(devices: &[Device]) -> CaseResult {
    const COUNT: usize = 2003;
    let members = members(devices)?;
    let mut graph = Graph::new();
    let first = add_work(&mut graph, &members[0], COUNT)?;
    if devices[1..].contains(&devices[0]) {
        refused(add_work(&mut graph, &members[1], COUNT), "another member of the communicator");
        return Ok(());
    }
    let mut results = vec![first];
    for member in &members[1..] {
        results.push(add_work(&mut graph, member, COUNT)?);
    }
    let mut plan = graph.plan()?;
    for _ in 0..3 {
        // SAFETY: as declared for the launches.
        unsafe { plan.run(&members[0].stream) }?;
    }
    for x in results {
        expect_all(&x.to_vec()?, |i| expected_of_work(members.len() as u32, 3, i));
    }
    Ok(())
}

/// The runs of the others end in the failure of one, and so do the next ones.
#[allow(unsafe_code)] // runs
fn a_graph_that_fails_names_the_member(devices: &[Device]) -> CaseResult {
    let members = members(devices)?;
    let last = members.len() - 1;
    let mut plans = Vec::new();
    for member in &members[..last] {
        let mut graph = Graph::new();
        let x = add_work(&mut graph, member, 100)?;
        plans.push((graph.plan()?, x, member));
    }
    for round in 0..2 {
        let mut pending = Vec::new();
        for (plan, _, member) in &mut plans {
            // SAFETY: as declared for the launches.
            pending.push(unsafe { plan.run(&member.stream) }?);
        }
        if round == 0 {
            members[last].communicator.abort("it has given up");
        }
        for (done, (_, x, member)) in pending.iter().zip(&plans) {
            expect_rank(done.wait(), last as u32, "it has given up");
            expect_rank(x.to_vec(), last as u32, "it has given up");
            member.stream.acknowledge();
        }
    }
    let mut graph = Graph::new();
    let device = members[0].device();
    let mut x = graph.transient::<u32>(device, 7)?;
    let operation = Operation::all_reduce_in_place(Reduction::Sum, &mut x);
    refused(graph.collective(&members[0].communicator, operation), "of a transient");
    Ok(())
}

/// Each is refused when it is submitted, by one member alone, and changes nothing.
fn invalid_operations(devices: &[Device]) -> CaseResult {
    let members = members(devices)?;
    let (first, size) = (&members[0], members.len());
    let submit = |operation: Operation<'_>| first.stream.collective(&first.communicator, operation).map(drop);
    let x = first.device().buffer::<u32>(8 * size + 1)?;
    let (mut y, mut wide) = (first.device().buffer::<u32>(8)?, first.device().buffer::<u32>(8 * size + 1)?);
    refused(submit(Operation::broadcast(size as u32, &mut y)), "of a communicator of");
    refused(submit(Operation::send(0, &x)), "the member itself");
    refused(submit(Operation::all_reduce(Reduction::Sum, &x, &mut y)), "the target of rank 0 has 8 elements");
    refused(submit(Operation::all_gather(x.slice(0..8)?, &mut wide)), "the target of rank 0 has");
    refused(submit(Operation::reduce(0, Reduction::Sum, x.slice(0..8)?, None)), "rank 0 has no target");
    refused(
        submit(Operation::gather(1, x.slice(0..8)?, Some((&mut wide).into()))),
        "which only the root has",
    );
    let mut pairs = first.device().buffer::<[u64; 5]>(3)?;
    refused(submit(Operation::all_reduce_in_place(Reduction::Sum, &mut pairs)), "cannot be reduced");
    for member in &members {
        member.stream.collective(&member.communicator, Operation::barrier())?;
    }
    members.iter().try_for_each(|member| member.stream.synchronize().map(drop))?;
    Ok(())
}

/// The members that are left add up ones.
fn go_on(left: &[&Member], timeout: Duration) -> CaseResult {
    let shrunk: Vec<elinvar::Result<Communicator>> = std::thread::scope(|scope| {
        let each = left.iter().map(|member| scope.spawn(move || member.communicator.shrink(timeout)));
        let each: Vec<_> = each.collect();
        each.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panic!("a thread"))).collect()
    });
    let mut results = Vec::new();
    for (communicator, member) in shrunk.into_iter().zip(left) {
        let communicator = communicator?;
        assert_eq!(communicator.size() as usize, left.len());
        member.stream.acknowledge();
        let mut x = member.device().buffer_with_data(&[1_u32; 1001])?;
        member.stream.collective(&communicator, Operation::all_reduce_in_place(Reduction::Sum, &mut x))?;
        results.push((x, communicator));
    }
    for (x, _communicator) in results {
        expect_all(&x.to_vec()?, |_| left.len() as u32);
    }
    Ok(())
}

#[track_caller]
fn expect_rank<T: std::fmt::Debug>(result: elinvar::Result<T>, rank: u32, text: &str) {
    let cause = match result {
        Err(Error::Poisoned(cause)) => (*cause).clone(),
        Err(error) => error,
        Ok(value) => panic!("{value:?}, expected the failure of rank {rank}"),
    };
    assert!(matches!(cause, Error::RankFailed { rank: failed, .. } if failed == rank), "{cause}");
    assert!(cause.to_string().contains(text), "{cause}");
}

/// A member that gives up: the operations of the others, which have begun, end with its rank and reason.
fn a_member_that_fails_is_named(devices: &[Device]) -> CaseResult {
    let members = members(devices)?;
    let last = members.len() - 1;
    let mut pending = Vec::new();
    for member in &members[..last] {
        let mut x = member.device().buffer_with_data(&[1_u32; 100])?;
        let done = member
            .stream
            .collective(&member.communicator, Operation::all_reduce_in_place(Reduction::Sum, &mut x))?;
        pending.push((done, x));
    }
    members[last].communicator.abort("it has given up");
    for (done, x) in pending {
        expect_rank(done.wait(), last as u32, "it has given up");
        expect_rank(x.to_vec(), last as u32, "it has given up");
    }
    go_on(&members[..last].iter().collect::<Vec<_>>(), Duration::from_secs(20))
}

/// A member that does not take part is named after the timeout, and the others go on.
fn a_member_that_hangs_is_left_behind(devices: &[Device]) -> CaseResult {
    let members = members(devices)?;
    let hangs = members.len() / 2;
    let others: Vec<&Member> = members.iter().filter(|member| member.rank() as usize != hangs).collect();
    let mut pending = Vec::new();
    for member in &others {
        member.communicator.set_timeout(Duration::from_millis(500));
        let mut x = member.device().buffer_with_data(&[1_u32; 100])?;
        let done = member
            .stream
            .collective(&member.communicator, Operation::all_reduce_in_place(Reduction::Sum, &mut x))?;
        pending.push(done);
    }
    for done in pending {
        expect_rank(done.wait(), hangs as u32, "500ms");
    }
    go_on(&others, Duration::from_secs(20))
}
