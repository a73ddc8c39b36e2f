//! Runs the threads of a threadgroup, each simdgroup up to its next barrier.
//!
//! The threads of a simdgroup follow program order together: of those that have not returned, the first in order runs to the end of
//! its block, and the threads at one simdgroup operation execute it when no other is before it. Threads on a path to which those
//! before them do not come, such as to an early return, do not wait for them. If the first ones are at a threadgroup
//! barrier, and all others wait for them, the simdgroup has arrived. When all simdgroups with threads have arrived, at the same
//! barrier, the threads at it continue.
//!
//! At a grid barrier a threadgroup is suspended, with its threads behind the barrier.
//!
//! In code lowered for NVPTX a thread runs until it returns or synchronizes: lanes meet by their masks, and barriers count threads.

use elinvar_ir::{Call, Callee, Op};
use elinvar_spmd::intrinsic::Intrinsic;

use crate::fault::{Fault, Problem, Result};
use crate::group_ops::{self, LANES};
use crate::machine::Machine;
use crate::thread::{Function, Site, State, Thread};
use crate::value::Value;
use crate::warp;

impl<'m> Machine<'m> {
    /// Runs the threads of a threadgroup to their end, or past the next grid barrier. Returns the place of that barrier.
    pub(crate) fn run_group(
        &mut self,
        threads: &mut [Thread<'m>],
    ) -> std::result::Result<Option<Site>, Fault> {
        loop {
            for simdgroup in threads.chunk_by_mut(|a, b| a.nominal / LANES == b.nominal / LANES) {
                self.run_simdgroup(simdgroup)?;
            }
            match self.pass_barrier(threads)? {
                Some((site, true)) => return Ok(Some(site)),
                Some((_, false)) => {}
                None => {
                    let stuck = threads.iter().find(|t| !matches!(t.state, State::Done));
                    return stuck.map_or(Ok(None), |thread| Err(self.fault(Problem::Stuck, Some(thread))));
                }
            }
        }
    }

    /// The threads of the current threadgroup, before they run.
    pub(crate) fn start(&mut self, entry: usize, args: &[Value]) -> Result<Vec<Thread<'m>>> {
        let [x, y, z] = self.sizes.group_size;
        let [full_x, full_y, _] = self.sizes.full_group.map(|n| n as usize);
        let mut threads = Vec::new();
        for index in 0..x * y * z {
            let position = [index % x, index / x % y, index / x / y];
            let frame = self.enter(entry, &[], args.to_vec(), None)?;
            let [px, py, pz] = position.map(|p| p as usize);
            let nominal = px + full_x * (py + full_y * pz);
            threads.push(Thread { position, nominal, frames: vec![frame], state: State::Ready });
        }
        Ok(threads)
    }

    fn run_simdgroup(&mut self, threads: &mut [Thread<'m>]) -> std::result::Result<(), Fault> {
        if self.options.blocks {
            return self.run_warp(threads);
        }
        let mut keys = Vec::new();
        for thread in &*threads {
            keys.push(self.key(thread).map_err(|p| self.fault(p, Some(thread)))?);
        }
        loop {
            let active = (0..threads.len()).filter(|lane| !matches!(threads[*lane].state, State::Done));
            let mut active: Vec<usize> = active.collect();
            active.sort_by_key(|lane| &keys[*lane]);
            let Some(first) = active.first().copied() else { return Ok(()) };
            let waits = |lane: usize| {
                active
                    .iter()
                    .take_while(|other| keys[**other] < keys[lane])
                    .any(|other| self.leads(&threads[*other], &threads[lane]))
            };
            let is_at_barrier = |lane: &usize| matches!(threads[*lane].state, State::AtBarrier);
            let ahead = active.iter().copied().find(|lane| !is_at_barrier(lane) && !waits(*lane));
            let first = ahead.unwrap_or(first);
            let together: Vec<usize> = (0..threads.len())
                .filter(|lane| keys[*lane] == keys[first] && !matches!(threads[*lane].state, State::Done))
                .collect();
            let is_ready = |lane: &&usize| matches!(threads[**lane].state, State::Ready);
            match (together.iter().find(is_ready), &threads[first].state) {
                (Some(ready), _) => {
                    let thread = &mut threads[*ready];
                    self.run_block(thread).map_err(|p| self.fault(p, Some(thread)))?;
                }
                (None, State::AtGroupCall(_)) => self.meet(threads, &together)?,
                (None, _) => {
                    together.into_iter().for_each(|lane| threads[lane].state = State::Arrived);
                    return Ok(());
                }
            }
            for lane in together {
                keys[lane] = self.key(&threads[lane]).map_err(|p| self.fault(p, threads.get(lane)))?;
            }
        }
    }

    /// Runs a thread to the end of a block, or up to a synchronization point.
    fn run_block(&mut self, thread: &mut Thread<'m>) -> Result<()> {
        while matches!(thread.state, State::Ready) {
            let frame = thread.frame()?;
            let is_end = frame.inst >= self.function(frame.function).block(frame.block).insts.len();
            self.step(thread)?;
            if is_end {
                break;
            }
        }
        Ok(())
    }

    /// Runs the lanes of a warp until each has returned or waits at a barrier.
    fn run_warp(&mut self, threads: &mut [Thread<'m>]) -> std::result::Result<(), Fault> {
        loop {
            for thread in &mut *threads {
                while matches!(thread.state, State::Ready) {
                    self.step(thread).map_err(|p| self.fault(p, Some(thread)))?;
                }
            }
            if !self.meet_by_mask(threads)? {
                let waiting = threads.iter_mut().filter(|t| matches!(t.state, State::AtBarrier));
                waiting.for_each(|thread| thread.state = State::Arrived);
                return Ok(());
            }
        }
    }

    /// Executes an operation at which all lanes of its mask wait; returns false if there is none.
    fn meet_by_mask(&mut self, threads: &mut [Thread<'m>]) -> std::result::Result<bool, Fault> {
        let results = warp::meet(threads).map_err(|p| self.fault(p, threads.first()))?;
        let met = !results.is_empty();
        for (lane, value) in results {
            let thread = &mut threads[lane];
            thread.state = State::Ready;
            if let Err(problem) = self.return_from_call(thread, value) {
                return Err(self.fault(problem, Some(thread)));
            }
        }
        Ok(met)
    }

    /// Executes the operation at which these threads wait.
    fn meet(&mut self, threads: &mut [Thread<'m>], together: &[usize]) -> std::result::Result<(), Fault> {
        let first = together.first().copied().unwrap_or(0);
        let results = results(threads, together).map_err(|p| self.fault(p, threads.get(first)))?;
        for (lane, value) in together.iter().copied().zip(results) {
            let thread = &mut threads[lane];
            thread.state = State::Ready;
            if let Err(problem) = self.return_from_call(thread, value) {
                return Err(self.fault(problem, Some(thread)));
            }
        }
        Ok(())
    }

    /// Whether a thread comes to the place of another one, which waits for it there.
    fn leads(&self, thread: &Thread<'m>, other: &Thread<'m>) -> bool {
        let mut frames = thread.frames.iter().zip(&other.frames);
        let apart = frames.find(|(a, b)| (a.function, a.block, a.inst) != (b.function, b.block, b.inst));
        let Some((a, b)) = apart.filter(|(a, b)| a.function == b.function && a.block != b.block) else {
            return true;
        };
        let order = self.order(a.function);
        order.map_or(true, |order| order.leads((&a.rounds, a.block), (&b.rounds, b.block)))
    }

    /// Sort key of a thread in its simdgroup.
    fn key(&self, thread: &Thread<'m>) -> Result<Vec<(u32, u32)>> {
        let mut key = Vec::new();
        for frame in &thread.frames {
            self.order(frame.function)?.key(&frame.rounds, frame.block, frame.inst, &mut key);
        }
        Ok(key)
    }

    /// Stores the result of the operation at which a thread waits, and resumes the thread.
    fn return_from_call(&self, thread: &mut Thread<'m>, value: Option<Value>) -> Result<()> {
        let frame = thread.frame_mut()?;
        let block = self.function(frame.function).block(frame.block);
        if let (Some(value), Some(inst)) = (value, block.insts.get(frame.inst)) {
            frame.set(inst.result, value);
        }
        frame.inst += 1;
        Ok(())
    }

    /// Whether a thread is at a grid barrier.
    fn is_at_grid_barrier(&self, thread: &Thread<'m>) -> Result<bool> {
        let frame = thread.frame()?;
        let inst = self.function(frame.function).block(frame.block).insts.get(frame.inst);
        Ok(match inst.map(|inst| &inst.op) {
            Some(Op::Call(Call { callee: Callee::Function(name), .. })) => {
                Intrinsic::parse(name) == Some(Intrinsic::GridBarrier)
            }
            _ => false,
        })
    }

    /// Lets the threads that have arrived at a barrier pass it. Returns its place, and whether it is a grid barrier; `None` if there are
    /// none.
    fn pass_barrier(
        &mut self,
        threads: &mut [Thread<'m>],
    ) -> std::result::Result<Option<(Site, bool)>, Fault> {
        let mut site = None;
        let mut is_of_grid = false;
        let mut location = None;
        for thread in threads.iter().filter(|t| matches!(t.state, State::Arrived)) {
            let here = thread.site();
            match &site {
                None => {
                    is_of_grid = self.is_at_grid_barrier(thread).map_err(|p| self.fault(p, Some(thread)))?;
                    location = thread.frames.iter().rev().find_map(|f| self.location(f));
                    site = Some(here);
                }
                Some(first) if *first != here => {
                    return Err(self.fault(Problem::DivergentBarrier { other: location }, Some(thread)));
                }
                Some(_) => {}
            }
        }
        for thread in &mut *threads {
            if matches!(thread.state, State::Arrived) {
                thread.state = State::Ready;
                if let Err(problem) = self.return_from_call(thread, None) {
                    return Err(self.fault(problem, Some(thread)));
                }
            }
        }
        Ok(site.map(|site| (site, is_of_grid)))
    }
}

/// The results of an operation for these threads of a simdgroup.
fn results(threads: &[Thread<'_>], together: &[usize]) -> Result<Vec<Option<Value>>> {
    let mut calls: [group_ops::Call<'_>; LANES] = [None; LANES];
    let mut function = None;
    let lane = |index: &usize| threads[*index].nominal % LANES;
    for index in together {
        if let State::AtGroupCall(waiting) = &threads[*index].state {
            calls[lane(index)] = Some(&waiting.args);
            function = Some(waiting.function);
        }
    }
    match function {
        Some(Function::Group(function)) => {
            let mut results = group_ops::results(function, &calls)?;
            Ok(together.iter().map(|index| results[lane(index)].take()).collect())
        }
        Some(Function::SimdgroupBarrier) | None => Ok(vec![None; together.len()]),
        Some(Function::Warp(name)) => Err(Problem::Unsupported(format!("the intrinsic `{name}`"))),
    }
}
