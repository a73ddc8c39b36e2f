//! Copies between two devices, by whichever route is available.
#![allow(unsafe_code)] // reads and writes memory that the test alone uses

use std::sync::Arc;

use elinvar_driver::{Command, Device, Event};

use crate::bench::{Bench, bytes, expect_all, fill, signal, slice, submit, wait, whole, words};

/// Round trips in both directions, on the queues of both devices.
pub fn copies(devices: &[Arc<dyn Device>]) {
    let [one, other] = [Bench::new(devices[0].clone()), Bench::new(devices[1].clone())];
    let reach = one.device.reaches(&*other.device);
    println!("{reach:?}");
    assert!(reach.is_some() && reach == other.device.reaches(&*one.device));
    const LEN: usize = 40 << 20;
    let data: Vec<u8> = (0..LEN).map(|i| (i * 7 + i / 251) as u8).collect();
    let (a, b, c) = (one.memory(LEN as u64), other.memory(LEN as u64), one.memory(LEN as u64));
    // SAFETY: in range, and no other code uses it.
    unsafe { a.write(0, &data) }.unwrap();
    let (ours, theirs) = (one.queue(), other.queue());
    let event: Arc<dyn Event> = one.event();
    let first = submit(&ours, [Command::Copy { source: whole(&a), target: whole(&b) }, signal(&event, 1)]);
    let back = Command::Copy { source: slice(&b, 4, 1 << 20), target: slice(&c, 8, 1 << 20) };
    submit(&theirs, [wait(&event, 1), back]).wait().unwrap();
    first.wait().unwrap();
    assert!(bytes(&b) == data);
    expect_all(&bytes(&c)[8..8 + (1 << 20)], |i| data[4 + i]);
    // Alternating between the queues.
    let event = other.event();
    for turn in 0..40_u64 {
        let (queue, from, to) = if turn % 2 == 0 { (&ours, &a, &b) } else { (&theirs, &b, &a) };
        let copy = Command::Copy { source: whole(from), target: whole(to) };
        submit(queue, [wait(&event, turn), fill(from, turn as u32), copy, signal(&event, turn + 1)]);
    }
    submit(&ours, [wait(&event, 40)]).wait().unwrap();
    expect_all(&words(&a), |_| 39);
    expect_all(&words(&b), |_| 39);
}
