//! A flag that stops a job, and a pause that ends early when it is raised.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Cancel {
    inner: Arc<(Mutex<bool>, Condvar)>,
}

impl Cancel {
    pub fn raise(&self) {
        *self.inner.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.inner.1.notify_all();
    }

    pub fn is_raised(&self) -> bool {
        *self.inner.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `pause` at most; true when the flag is up.
    pub fn wait(&self, pause: Duration) -> bool {
        let guard = self.inner.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = self
            .inner
            .1
            .wait_timeout_while(guard, pause, |raised| !*raised)
            .unwrap_or_else(PoisonError::into_inner);
        *guard
    }
}
