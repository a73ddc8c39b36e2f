//! Files from the host, kept until the message that uses them arrives.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use elinvar_driver::sync::{Condvar, Mutex};

#[derive(Default)]
pub(super) struct Files {
    come: Mutex<HashMap<u64, OwnedFd>>,
    more: Condvar,
}

impl Files {
    pub(super) fn put(&self, number: u64, file: OwnedFd) {
        self.come.lock().insert(number, file);
        self.more.notify_all();
    }

    /// Waits for the file with a number. The host sends it before the message that refers to it; if the host ends, so does this process.
    pub(super) fn take(&self, number: u64) -> OwnedFd {
        let mut come = self.come.lock();
        loop {
            match come.remove(&number) {
                Some(file) => return file,
                None => self.more.wait(&mut come),
            }
        }
    }
}
