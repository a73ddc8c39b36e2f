//! Model of the doorbell: work that is published before a ring is found, by a thread that sleeps only after it has found none.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::doorbell_source::Doorbell;
use crate::model;

/// Takes as many items as were published; sleeps when there is none.
fn serve(bell: &Doorbell, published: &AtomicU64, items: u64) {
    let mut taken = 0;
    while taken < items {
        let ticket = bell.enter();
        match published.load(Ordering::Acquire) {
            now if now > taken => taken = now,
            _ => bell.wait(ticket, None),
        }
        bell.leave();
    }
}

#[test]
fn no_item_is_missed() {
    model(|| {
        let (bell, published) = (Arc::new(Doorbell::default()), Arc::new(AtomicU64::new(0)));
        let server = thread::spawn({
            let (bell, published) = (bell.clone(), published.clone());
            move || serve(&bell, &published, 2)
        });
        for _ in 0..2 {
            published.fetch_add(1, Ordering::Release);
            bell.ring();
        }
        server.join().unwrap();
    });
}

#[test]
fn two_hosts_wake_two_servers() {
    model(|| {
        let (bell, published) = (Arc::new(Doorbell::default()), Arc::new(AtomicU64::new(0)));
        let host = thread::spawn({
            let (bell, published) = (bell.clone(), published.clone());
            move || {
                published.fetch_add(1, Ordering::Release);
                bell.ring();
            }
        });
        let server = thread::spawn({
            let (bell, published) = (bell.clone(), published.clone());
            move || serve(&bell, &published, 1)
        });
        serve(&bell, &published, 1);
        host.join().unwrap();
        server.join().unwrap();
    });
}
