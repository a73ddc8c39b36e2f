//! Launches whose threadgroup counts are in memory, without a round trip to the host: the executor reads the counts and launches the kernel, of
//! which the host has packed the other parameters.
//!
//! Work behind such a launch is submitted before it is known whether the counts are within the limits. If they are not, the launch has no
//! effect, and the host learns of it at the next fence.

use std::sync::Arc;

use elinvar_driver::{Dim3, Dispatch, Error, Grid, MemorySlice, Result};
use elinvar_ptx::Parameter;

use super::layout::{Bytes, code};
use crate::encode::Encoder;
use crate::function::{Packed, Target, memory};
use crate::shared::Shared;

/// Size of the report in bytes: a code and three numbers.
const REPORT_BYTES: usize = 16;
/// Maximum size of a kernel's parameters in bytes, as in `executor.c`.
const MOST_PARAMETERS: usize = 952;
/// Offset of a parameter that the kernel does not have.
const NOWHERE: u32 = u32::MAX;

impl Encoder<'_> {
    /// Appends a launch with counts in memory to the stream; returns whether it can be, without a round trip. The context must be current.
    pub(crate) fn launch_indirect(&mut self, dispatch: &Dispatch, counts: &MemorySlice) -> Result<bool> {
        let pipeline = crate::encode::pipeline(dispatch)?;
        let Some(program) = pipeline.program(self.shared, &dispatch.bindings)? else { return Ok(false) };
        if dispatch.group.volume() > u128::from(program.first.most_threads) {
            return Ok(false);
        }
        let counts = memory(counts)?.at(counts.offset, Grid::COUNTS_BYTES)?;
        let Shared { chunks, context, .. } = self.shared;
        let (staging, stream) = (&mut *self.staging, self.stream);
        let check = CountsCheck { dispatch: Arc::new(dispatch.clone()) };
        let function = pipeline.function(&dispatch.bindings)?.clone();
        let (counter, params) = (&mut *self.counter, &mut *self.params);
        let mut target = Target { stream, chunks, staging, counter, params };
        let Packed { shared, offsets } = function.pack_without_grid(dispatch, &mut target)?;
        if u64::from(shared) > program.first.most_dynamic {
            return Ok(false);
        }
        if self.params.len() > MOST_PARAMETERS {
            return Ok(false);
        }
        let status = self.staging.counts_report(chunks, context, stream, check)?;
        let at = |parameter: Parameter| {
            let known = offsets.iter().find(|(known, _)| *known == parameter);
            known.map_or(NOWHERE, |(_, offset)| *offset)
        };
        let mut bytes = Bytes::default();
        bytes.u64s(&[program.first.entry, counts, status]);
        bytes.u32s(&dispatch.group.to_array());
        bytes.u32s(&[shared]);
        bytes.u32s(&[0, 1, 2].map(|d| at(Parameter::Threads(d))));
        bytes.u32s(&[at(Parameter::Extent)]);
        bytes.u32s(&[0, 1].map(|d| at(Parameter::Linear(d))));
        bytes.u32s(&[u32::try_from(self.params.len()).unwrap_or(u32::MAX), 0]);
        let end = bytes.0.len() + MOST_PARAMETERS;
        bytes.0.extend_from_slice(self.params);
        bytes.0.resize(end, 0);
        self.launch_executor(program.indirect.0, 1, bytes)?;
        Ok(true)
    }
}

/// What the report of a launch with counts in memory means.
pub(crate) struct CountsCheck {
    dispatch: Arc<Dispatch>,
}

impl CountsCheck {
    /// Size of a report in bytes.
    pub(crate) const BYTES: usize = REPORT_BYTES;

    /// The fault that a report tells of.
    pub(crate) fn fault(&self, report: [u32; 4]) -> Option<Error> {
        let [code, x, y, z] = report;
        let dispatch = &self.dispatch;
        Some(match code {
            code::DONE => return None,
            code::REJECTED => {
                let fault = dispatch.threads_of(Dim3::new(x, y, z)).err();
                fault.unwrap_or_else(|| dispatch.fault("its counts were changed while it began".into()))
            }
            code::GRID => {
                let (counts, most) = (Dim3::new(x, y, z), i32::MAX);
                dispatch.fault(format!("{counts} threadgroups, read when it began: at most {most} in all"))
            }
            code::LAUNCH_FAILED => {
                dispatch.fault(format!("CUDA's device runtime cannot launch it (error {x})"))
            }
            other => dispatch.fault(format!("the report was overwritten: code {other}")),
        })
    }
}
