//! An answer in the making: token ids from the journal become text, cut at stop strings. Both ways of sending pull from here.
//!
//! Dropping it cancels the request: that is how a client that closed its socket stops the engine.

use plimsoll_wire::Finish;

use super::error::ApiError;
use super::shape::{FinishReason, Usage};
use super::stop::{Matched, StopMatcher};
use crate::journal::End;
use crate::supervisor::Ticket;
use crate::text::TextStream;

/// One answer.
pub(crate) struct Answer {
    ticket: Ticket,
    text: TextStream,
    stops: StopMatcher,
    n_prompt: usize,
    /// Ids of the journal that were turned into text.
    n_seen: usize,
    /// The end, once it is known and only has to be told.
    end: Option<Step>,
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    /// More text; not empty.
    Text(String),
    /// The end.
    End(FinishReason, Usage),
    /// The end without an answer.
    Failed(ApiError),
}

impl Answer {
    pub(crate) fn new(ticket: Ticket, text: TextStream, stops: Vec<String>, n_prompt: usize) -> Self {
        Self { ticket, text, stops: StopMatcher::new(stops), n_prompt, n_seen: 0, end: None }
    }

    /// Waits for the next step. Dropping the wait loses nothing. Not to be called after an end.
    pub(crate) async fn step(&mut self) -> Step {
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            let (ids, end) = {
                let progress = self.ticket.progress.borrow_and_update();
                (progress.ids.get(self.n_seen..).unwrap_or_default().to_vec(), progress.end.clone())
            };
            let text = self.take(&ids, end);
            if !text.is_empty() {
                return Step::Text(text);
            }
            if self.end.is_none() && self.ticket.progress.changed().await.is_err() {
                return Step::Failed(ApiError::engine("the daemon ended before the answer did"));
            }
        }
    }

    /// Turns new ids into text and remembers the end.
    fn take(&mut self, ids: &[u32], end: Option<End>) -> String {
        let mut text = String::new();
        for &id in ids {
            self.n_seen += 1;
            let piece = self.text.push(id);
            match self.stops.push(&piece) {
                Matched::Text(more) => text.push_str(&more),
                Matched::Stop(more) => {
                    text.push_str(&more);
                    self.end = Some(Step::End(FinishReason::Stop, self.usage()));
                    return text;
                }
            }
        }
        let Some(end) = end else { return text };
        let finish = match end {
            End::Finished(Finish::Stop, _) => FinishReason::Stop,
            End::Finished(Finish::Length, _) => FinishReason::Length,
            End::Finished(Finish::Cancelled, _) => {
                self.end = Some(Step::Failed(ApiError::engine("the answer was cancelled by the server")));
                return text;
            }
            End::Failed(failure) => {
                self.end = Some(Step::Failed(ApiError::failed(&failure)));
                return text;
            }
        };
        let rest = self.text.finish();
        let finish = match self.stops.push(&rest) {
            Matched::Text(more) => {
                text.push_str(&more);
                text.push_str(&self.stops.finish());
                finish
            }
            Matched::Stop(more) => {
                text.push_str(&more);
                FinishReason::Stop
            }
        };
        self.end = Some(Step::End(finish, self.usage()));
        text
    }

    fn usage(&self) -> Usage {
        Usage { n_prompt: self.n_prompt, n_completion: self.n_seen }
    }
}
