//! [`decide`]: what is done about a failure. The one place that decides.
//!
//! It is a function of the error, the policy and what has been tried; it does nothing, waits for nothing and looks at no
//! message text.

use std::fmt;
use std::time::Duration;

use elinvar_driver::Error;

use super::RecoveryPolicy;

/// Errors by what can be done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultClass {
    /// It may go away: a full queue, a timeout, something outside.
    Transient,
    /// There was no memory.
    OutOfMemory,
    /// The device is gone.
    DeviceLost,
    /// The kernel did something wrong.
    KernelFault,
    /// The device is not given work.
    Refused,
    /// Somebody wanted it to end.
    Cancelled,
    /// Other work failed.
    EarlierWork,
    /// The call, the source or the device's abilities: it would fail again.
    WrongCall,
}

impl FaultClass {
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

/// What has become of a piece of work so far.
#[derive(Clone, Debug)]
pub struct Attempts {
    /// A number of its own, for the jitter.
    pub work: u64,
    /// How often it was tried.
    pub made: u32,
    /// How often the device was reset for it.
    pub resets: u32,
    /// Whether the device was reset, for whomever, since it was tried.
    pub is_back: bool,
    /// Why it cannot be run again; `None` if it can.
    pub not_again: Option<String>,
    /// Why the device cannot be reset, once that is known.
    pub no_reset: Option<String>,
    /// Why it cannot be run on another device, once that is known.
    pub no_rerun: Option<String>,
    /// Whether somebody has told it to end.
    pub stopped: bool,
}

impl Attempts {
    /// Of work that was tried once and can be run again.
    pub fn first(work: u64) -> Self {
        let (not_again, no_reset, no_rerun) = (None, None, None);
        Self { work, made: 1, resets: 0, is_back: false, not_again, no_reset, no_rerun, stopped: false }
    }
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// It ends in its error.
    GiveUp,
    /// It is tried again.
    Retry,
    /// The device's pool gives back all that is idle, and it is tried again.
    Trim,
    /// The device is reset, and it is tried again.
    Reset,
    /// It is run on the other device of the policy.
    Rerun,
    /// The device is not given the work, because it fails too often.
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

/// What is done about a failure, when, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What.
    pub action: Action,
    /// After this time.
    pub after: Duration,
    /// Why, for people.
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

/// What is done about `error`, which a piece of work has ended in.
pub fn decide(error: &Error, policy: &RecoveryPolicy, tried: &Attempts) -> Decision {
    let class = FaultClass::of(error);
    let give_up =
        |reason: &str| Decision { action: Action::GiveUp, after: Duration::ZERO, reason: reason.into() };
    if tried.stopped {
        return give_up("it was told to end");
    }
    match class {
        FaultClass::Cancelled => return give_up("it was cancelled"),
        FaultClass::EarlierWork => return give_up("what it waits for has failed"),
        FaultClass::WrongCall => return give_up("it would fail again"),
        FaultClass::KernelFault if !policy.faults => return give_up("the kernel faulted, and would again"),
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
            // What trimming gives back is there at once; after that, others have to give something back.
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
            again(Action::Rerun, Duration::ZERO, format!("{spent}; device `{}` takes it", device.name()))
        }
        (Some(_), Some(why)) => Decision { reason: format!("{spent}; {why}"), ..last(class) },
        _ => Decision { reason: spent, ..last(class) },
    }
}

/// The end of what cannot be helped.
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
        // The processor's memory is the same.
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
