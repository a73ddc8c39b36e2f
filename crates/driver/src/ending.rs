//! [`end_submission`]: the last step of a submission in every driver; [`panic_text`]: message of a panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::{Callback, Command, Done, Error, Log, Result, Timing, fail_signals};

/// Ends a submission: passes on its log lines, fails its events if `result` is an error, drops `commands`, then calls `done`. No lock of
/// the driver may be held.
///
/// Panics of callbacks and destructors are caught here, after the panic hook has reported them. A panic before `done` turns the
/// submission's result into an error; a panic in `done` is ignored.
pub fn end_submission(commands: Arc<[Command]>, done: Done, result: Result<Timing>) {
    let _callback = Callback::enter();
    let let_go = catch_unwind(AssertUnwindSafe(|| {
        if let Some(log) = log_of(&commands) {
            log.end(result.is_err());
        }
        if let Err(error) = &result {
            fail_signals(&commands, error);
        }
        drop(commands);
    }));
    let result = result.and_then(|timing| match let_go {
        Ok(()) => Ok(timing),
        Err(panic) => {
            let text = panic_text(&*panic);
            Err(Error::Environment(format!("a destructor panicked after a submission ended: {text}")))
        }
    });
    let _panic = catch_unwind(AssertUnwindSafe(|| done.call(result)));
}

/// Begins to read the log to which these commands write, if any does, before they are issued. [`end_submission`] ends it.
pub fn begin_log(commands: &[Command]) {
    if let Some(log) = log_of(commands) {
        log.begin();
    }
}

/// The log of the device, if one of the commands is a dispatch of a kernel with log calls.
fn log_of(commands: &[Command]) -> Option<&Arc<Log>> {
    commands.iter().find_map(|command| match command {
        Command::Dispatch(dispatch) => dispatch.pipeline.log_kernel().map(|kernel| kernel.log()),
        Command::LaunchNested(nested) => {
            let mut kernels = std::iter::once(&nested.root.pipeline).chain(nested.children.kernels());
            kernels.find_map(|pipeline| pipeline.log_kernel().map(|kernel| kernel.log()))
        }
        Command::ExecuteCommands(execution) => {
            execution.kernels().find_map(|pipeline| pipeline.log_kernel().map(|kernel| kernel.log()))
        }
        _ => None,
    })
}

/// Message of a panic's payload; `no message` if the payload is not a string.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::{Event as _, Timeline};

    fn ended(events: &[&Arc<Timeline>], result: Result<Timing>) -> Result<Timing> {
        let signal = |event: &&Arc<Timeline>| Command::Signal { event: (*event).clone(), value: 1 };
        let (sender, told) = channel();
        let done = Done::new(move |result| sender.send(result).unwrap());
        end_submission(events.iter().map(signal).collect(), done, result);
        told.try_recv().expect("`done` is called once")
    }

    #[test]
    fn a_failure_is_that_of_the_events_too() {
        let event = Arc::default();
        assert_eq!(ended(&[&event], Ok(Timing::default())).unwrap(), Timing::default());
        assert!(event.failure().is_none());
        assert!(matches!(ended(&[&event], Err(Error::Cancelled)), Err(Error::Cancelled)));
        assert!(event.failure().is_some());
    }

    #[test]
    fn callbacks_that_panic_keep_no_end_from_being_told() {
        let event: Arc<Timeline> = Arc::default();
        event.when(1, Box::new(|_| panic!("a callback of a test")));
        assert!(matches!(ended(&[&event], Err(Error::Cancelled)), Err(Error::Cancelled)));
        // And one of `done` does not come out.
        end_submission(Arc::new([]), Done::new(|_| panic!("a callback of a test")), Ok(Timing::default()));
    }
}
