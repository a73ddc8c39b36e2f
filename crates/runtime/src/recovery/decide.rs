//! [`decide`]: chooses the action for a failure. All decisions are made here.
//!
//! A pure function of the error, the policy and the previous attempts. It has no side effects, does not block, and does not inspect
//! message texts.

use std::fmt;
use std::time::Duration;

use elinvar_driver::Error;

use super::RecoveryPolicy;

/// Classes of errors, by possible recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultClass {
    /// May succeed on retry: a full queue, a timeout, a failure of the environment.
    Transient,
    /// Out of memory.
    OutOfMemory,
    /// The device was lost.
    DeviceLost,
    /// The kernel faulted.
    KernelFault,
    /// The device's breaker is open.
    Refused,
    /// The work was cancelled.
    Cancelled,
    /// Earlier work in the stream, or work that it waits for, failed.
    EarlierWork,
    /// Permanent: an invalid call or source, or an unsupported feature.
    WrongCall,
}

impl FaultClass {
    /// Lower-case name, with underscores.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::OutOfMemory => "out_of_memory",
            Self::DeviceLost => "device_lost",
            Self::KernelFault => "kernel_fault",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::EarlierWork => "earlier_work",
            Self::WrongCall => "wrong_call",
        }
    }

    /// The class of an error.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::QueueFull { .. } | Error::Timeout(_) | Error::Environment(_) => Self::Transient,
            Error::OutOfMemory { .. } => Self::OutOfMemory,
            Error::DeviceLost(_) => Self::DeviceLost,
            Error::Fault(_) => Self::KernelFault,
            Error::Refused(_) => Self::Refused,
            Error::Cancelled => Self::Cancelled,
            Error::Poisoned(_) => Self::EarlierWork,
            _ => Self::WrongCall,
        }
    }
}

/// State of the attempts at one work item.
#[derive(Clone, Debug)]
pub struct Attempts {
    /// Unique number of the work item; seeds the jitter.
    pub work: u64,
    /// Number of attempts made.
    pub made: u32,
    /// Number of resets of the device on behalf of this work.
    pub resets: u32,
    /// Whether the device was reset since the last attempt, on behalf of any work.
    pub is_back: bool,
    /// Reason why it cannot be retried; `None` if it can.
    pub not_again: Option<String>,
    /// Reason why the device cannot be reset; `None` if that is not known.
    pub no_reset: Option<String>,
    /// Reason why it cannot run on another device; `None` if that is not known.
    pub no_rerun: Option<String>,
    /// Whether it was stopped by the user or by its deadline.
    pub stopped: bool,
}

impl Attempts {
    /// State after one attempt at work that can be retried.
    pub fn first(work: u64) -> Self {
        let (not_again, no_reset, no_rerun) = (None, None, None);
        Self { work, made: 1, resets: 0, is_back: false, not_again, no_reset, no_rerun, stopped: false }
    }
}

/// Recovery action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// End the work in its error.
    GiveUp,
    /// Retry.
    Retry,
    /// Trim idle memory of the device's pool, then retry.
    Trim,
    /// Reset the device, then retry.
    Reset,
    /// Run the work on the other device, [`RecoveryPolicy::rerun`].
    Rerun,
    /// Refuse the work, because the breaker is open.
    Refuse,
}

impl Action {
    /// The action's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::GiveUp => "give up",
            Self::Retry => "retry",
            Self::Trim => "trim and retry",
            Self::Reset => "reset and retry",
            Self::Rerun => "rerun elsewhere",
            Self::Refuse => "refuse",
        }
    }
}

/// A recovery decision: the action, the delay before it, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The action.
    pub action: Action,
    /// Delay before the action.
    pub after: Duration,
    /// Reason, human-readable.
    pub reason: String,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, after, reason } = self;
        f.write_str(action.name())?;
        if !after.is_zero() {
            write!(f, " after {after:?}")?;
        }
        write!(f, ": {reason}")
    }
}

/// Chooses the action for work that has failed with `error`.
pub fn decide(error: &Error, policy: &RecoveryPolicy, tried: &Attempts) -> Decision {
    let class = FaultClass::of(error);
    let give_up =
        |reason: &str| Decision { action: Action::GiveUp, after: Duration::ZERO, reason: reason.into() };
    if tried.stopped {
        return give_up("it was stopped");
    }
    match class {
        FaultClass::Cancelled => return give_up("it was cancelled"),
        FaultClass::EarlierWork => return give_up("earlier work has failed"),
        FaultClass::WrongCall => return give_up("the error is permanent"),
        FaultClass::KernelFault if !policy.faults => return give_up("the kernel faulted"),
        _ => {}
    }
    if let Some(why) = &tried.not_again {
        return give_up(why);
    }
    let (made, most) = (tried.made, policy.attempts);
    let rerun_allowed = class != FaultClass::OutOfMemory || policy.rerun_when_full;
    let after = |first: bool| if first { Duration::ZERO } else { policy.wait(made, tried.work) };
    let again = |action, after, reason: String| Decision { action, after, reason };
    match class {
        FaultClass::Refused => {}
        FaultClass::DeviceLost if tried.is_back && made < most => {
            return again(Action::Retry, after(false), "the device was reset meanwhile".into());
        }
        FaultClass::DeviceLost if tried.no_reset.is_none() && tried.resets < policy.resets => {
            return again(Action::Reset, Duration::ZERO, "the device is lost".into());
        }
        FaultClass::DeviceLost => {}
        FaultClass::OutOfMemory if made < most => {
            // Trimmed memory is available at once. Later attempts depend on memory that others free.
            return again(
                Action::Trim,
                after(made == 1),
                format!("out of memory at attempt {made} of {most}"),
            );
        }
        _ if made < most => {
            return again(Action::Retry, after(false), format!("attempt {made} of {most} failed: {error}"));
        }
        _ => {}
    }
    let spent = match class {
        FaultClass::Refused => error.to_string(),
        FaultClass::DeviceLost => match &tried.no_reset {
            Some(why) => why.clone(),
            None => format!("the device is lost after {} of {} resets", tried.resets, policy.resets),
        },
        _ => format!("attempt {made} of {most} failed"),
    };
    match (&policy.rerun, &tried.no_rerun) {
        (Some(device), None) if rerun_allowed => {
            again(Action::Rerun, Duration::ZERO, format!("{spent}; rerun on device `{}`", device.name()))
        }
        (Some(_), Some(why)) => Decision { reason: format!("{spent}; {why}"), ..last(class) },
        _ => Decision { reason: spent, ..last(class) },
    }
}

/// The decision when all attempts are exhausted.
fn last(class: FaultClass) -> Decision {
    let action = if class == FaultClass::Refused { Action::Refuse } else { Action::GiveUp };
    Decision { action, after: Duration::ZERO, reason: String::new() }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::{Driver as _, Fault};

    use super::*;
    use crate::Device;

    fn device() -> Device {
        Device::new(elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0))
    }

    fn policy() -> RecoveryPolicy {
        let seed = 1;
        RecoveryPolicy { attempts: 3, resets: 1, seed, ..RecoveryPolicy::of(&device()) }
    }

    fn tried(made: u32) -> Attempts {
        Attempts { made, ..Attempts::first(0) }
    }

    fn action(error: &Error, policy: &RecoveryPolicy, tried: &Attempts) -> Action {
        decide(error, policy, tried).action
    }

    fn lost() -> Error {
        Error::DeviceLost("gone".into())
    }

    fn full() -> Error {
        Error::OutOfMemory { requested: 1, available: 0 }
    }

    fn fault() -> Error {
        Error::Fault(Fault { kernel: "k".into(), message: "m".into(), location: None, launch: None })
    }

    #[test]
    fn what_would_fail_again_is_given_up() {
        let finals = [
            Error::invalid("x"),
            Error::unsupported("x"),
            Error::Compile(Vec::new()),
            Error::Cancelled,
            lost().poison(),
            fault(),
        ];
        for error in finals {
            let decision = decide(&error, &policy(), &tried(1));
            assert_eq!((decision.action, decision.after), (Action::GiveUp, Duration::ZERO), "{error}");
        }
        let faults = RecoveryPolicy { faults: true, ..policy() };
        assert_eq!(action(&fault(), &faults, &tried(1)), Action::Retry);
        let stopped = Attempts { stopped: true, ..tried(1) };
        assert_eq!(action(&Error::Timeout("late".into()), &policy(), &stopped), Action::GiveUp);
    }

    #[test]
    fn what_may_go_away_is_tried_again_a_little_later() {
        let transient =
            [Error::Timeout("x".into()), Error::Environment("x".into()), Error::QueueFull { limit: 1 }];
        for error in transient {
            let decision = decide(&error, &policy(), &tried(2));
            assert_eq!((decision.action, decision.after), (Action::Retry, policy().wait(2, 0)), "{error}");
            assert_eq!(decision.reason, format!("attempt 2 of 3 failed: {error}"));
            assert_eq!(action(&error, &policy(), &tried(3)), Action::GiveUp);
        }
    }

    #[test]
    fn memory_is_trimmed_at_once_and_then_waited_for() {
        let first = decide(&full(), &policy(), &tried(1));
        assert_eq!((first.action, first.after), (Action::Trim, Duration::ZERO));
        let second = decide(&full(), &policy(), &tried(2));
        assert_eq!((second.action, second.after), (Action::Trim, policy().wait(2, 0)));
        assert_eq!(action(&full(), &policy(), &tried(3)), Action::GiveUp);
    }

    #[test]
    fn a_lost_device_is_reset_as_often_as_allowed() {
        assert_eq!(action(&lost(), &policy(), &tried(9)), Action::Reset);
        let again = decide(&lost(), &policy(), &Attempts { resets: 1, ..tried(2) });
        assert_eq!(again.to_string(), "give up: the device is lost after 1 of 1 resets");
        let back = Attempts { is_back: true, resets: 1, ..tried(2) };
        assert_eq!(decide(&lost(), &policy(), &back).to_string(), {
            format!("retry after {:?}: the device was reset meanwhile", policy().wait(2, 0))
        });
        let cannot = Attempts { no_reset: Some("no such thing".into()), ..tried(1) };
        assert_eq!(decide(&lost(), &policy(), &cannot).to_string(), "give up: no such thing");
    }

    #[test]
    fn the_other_device_is_the_last_way() {
        let elsewhere = RecoveryPolicy { rerun: Some(device()), ..policy() };
        let refused = Error::Refused("it fails".into());
        assert_eq!(action(&refused, &elsewhere, &tried(1)), Action::Rerun);
        assert_eq!(action(&refused, &policy(), &tried(1)), Action::Refuse);
        assert_eq!(action(&lost(), &elsewhere, &tried(1)), Action::Reset);
        assert_eq!(action(&lost(), &elsewhere, &Attempts { resets: 1, ..tried(2) }), Action::Rerun);
        let timeout = Error::Timeout("x".into());
        assert_eq!(action(&timeout, &elsewhere, &tried(2)), Action::Retry);
        assert_eq!(action(&timeout, &elsewhere, &tried(3)), Action::Rerun);
        // The CPU device shares its memory with this one.
        assert_eq!(action(&full(), &elsewhere, &tried(3)), Action::GiveUp);
        let discrete = RecoveryPolicy { rerun_when_full: true, ..elsewhere.clone() };
        assert_eq!(action(&full(), &discrete, &tried(3)), Action::Rerun);
        let cannot = Attempts { no_rerun: Some("its inputs are gone".into()), ..tried(3) };
        let text = decide(&timeout, &elsewhere, &cannot).to_string();
        assert_eq!(text, "give up: attempt 3 of 3 failed; its inputs are gone");
    }

    #[test]
    fn what_may_have_overwritten_its_inputs_is_never_run_again() {
        let elsewhere = RecoveryPolicy { rerun: Some(device()), faults: true, ..policy() };
        let in_place = Attempts { not_again: Some("it works in place".into()), ..tried(1) };
        for error in [lost(), full(), fault(), Error::Timeout("x".into()), Error::Refused("x".into())] {
            assert_eq!(decide(&error, &elsewhere, &in_place).to_string(), "give up: it works in place");
        }
    }
}
