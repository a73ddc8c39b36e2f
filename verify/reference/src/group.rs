//! Runs the threads of a threadgroup, one after the other up to synchronization points.
//!
//! A thread runs until it returns, reaches a threadgroup barrier, or reaches a simdgroup operation. When all threads of a
//! simdgroup have stopped, those at the first such operation in program order execute it. When all threads of the threadgroup
//! have stopped otherwise, they pass the barrier if all threads that have not returned are at the same one.

use crate::fault::{Fault, Problem, Result};
use crate::group_ops::{self, LANES};
use crate::machine::Machine;
use crate::thread::{Function, State, Thread};
use crate::value::Value;
use crate::warp;

impl<'m> Machine<'m> {
    /// Runs one threadgroup to completion.
    pub(crate) fn run_group(&mut self, entry: usize, args: &[Value]) -> std::result::Result<(), Fault> {
        let mut threads = self.start(entry, args).map_err(|p| self.fault(p, None))?;
        loop {
            for simdgroup in threads.chunk_by_mut(|a, b| a.nominal / LANES == b.nominal / LANES) {
                self.run_simdgroup(simdgroup)?;
            }
            if !self.pass_barrier(&mut threads)? {
                let stuck = threads.iter().find(|t| !matches!(t.state, State::Done));
                return stuck.map_or(Ok(()), |thread| Err(self.fault(Problem::Stuck, Some(thread))));
            }
        }
    }

    fn start(&mut self, entry: usize, args: &[Value]) -> Result<Vec<Thread<'m>>> {
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
        loop {
            for thread in &mut *threads {
                while matches!(thread.state, State::Ready) {
                    self.step(thread).map_err(|p| self.fault(p, Some(thread)))?;
                }
            }
            let met = if self.options.blocks { self.meet_by_mask(threads)? } else { self.meet(threads)? };
            if !met {
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

    /// Executes the first operation in program order at which threads wait; returns false if there is none.
    fn meet(&mut self, threads: &mut [Thread<'m>]) -> std::result::Result<bool, Fault> {
        let mut first: Option<Vec<(u32, u32)>> = None;
        let mut together = Vec::new();
        for (lane, thread) in threads.iter().enumerate() {
            if !matches!(thread.state, State::AtGroupCall(_)) {
                continue;
            }
            let key = self.key(thread).map_err(|p| self.fault(p, Some(thread)))?;
            let order = first.as_ref().map(|f| key.cmp(f));
            if order != Some(std::cmp::Ordering::Equal) && order != Some(std::cmp::Ordering::Greater) {
                first = Some(key);
                together.clear();
                together.push(lane);
            } else if order == Some(std::cmp::Ordering::Equal) {
                together.push(lane);
            }
        }
        let Some(lane) = together.first().copied() else { return Ok(false) };
        let results = results(threads, &together).map_err(|p| self.fault(p, threads.get(lane)))?;
        for (lane, value) in together.into_iter().zip(results) {
            let thread = &mut threads[lane];
            thread.state = State::Ready;
            if let Err(problem) = self.return_from_call(thread, value) {
                return Err(self.fault(problem, Some(thread)));
            }
        }
        Ok(true)
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

    /// Lets all threads pass the barrier at which they wait; returns false if all have returned.
    fn pass_barrier(&mut self, threads: &mut [Thread<'m>]) -> std::result::Result<bool, Fault> {
        let mut site = None;
        let mut location = None;
        for thread in threads.iter().filter(|t| matches!(t.state, State::AtBarrier)) {
            let here = thread.site();
            match &site {
                None => {
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
            if matches!(thread.state, State::AtBarrier) {
                thread.state = State::Ready;
                if let Err(problem) = self.return_from_call(thread, None) {
                    return Err(self.fault(problem, Some(thread)));
                }
            }
        }
        Ok(site.is_some())
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
