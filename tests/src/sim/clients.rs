//! The clients of a day and their requests. What they ask is fixed by the seed; when they ask follows from how they are served:
//! a closed loop asks again after its answer.

use super::day::{Day, FIRST_HOUR, HOUR_MS};
use super::draw::{mix, pick};
use super::sight::{ClientKind, Offer, RequestId};
use super::world::Range;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its answer is complete.
    Finished,
    /// Its client went away.
    Cancelled,
    /// The policy refused it.
    Refused,
    /// Nobody brought it to an end.
    Lost,
}

/// A request of the day.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// What the policy was told.
    pub offer: Offer,
    /// Who asked; `None` for a title, which nobody waits for.
    pub client: Option<usize>,
    /// The real length of its answer.
    pub answer_tokens: u32,
    /// The token of the answer at which the worker dies.
    pub poison_at: Option<u32>,
    /// When its client goes away.
    pub gives_up_ms: i64,
    /// Answer tokens that the client has.
    pub position: u32,
    /// How it ended.
    pub end: Option<End>,
    /// Workers that died of it.
    pub deaths: u32,
}

#[derive(Debug, Clone, Copy)]
struct Client {
    kind: ClientKind,
    next_ms: i64,
    number: u32,
}

/// Everybody who asks.
#[derive(Debug, Clone)]
pub struct Clients {
    clients: Vec<Client>,
    next_ms: i64,
}

/// Hours of the wall's clock in which agents work, and people are there.
const AGENT_HOURS: (i64, i64) = (9, 18);
const CHAT_HOURS: (i64, i64) = (8, 23);
/// A person who has waited this long goes away; a program waits longer.
const CHAT_PATIENCE_MS: i64 = 15 * 60_000;
const AGENT_PATIENCE_MS: i64 = 45 * 60_000;
/// Who was refused comes again after so long at least.
const REFUSED_MS: (i64, i64) = (20_000, 60_000);

impl Clients {
    /// The clients of a day.
    #[must_use]
    pub fn new(day: &Day) -> Self {
        let asks = &day.world.requests;
        let chats = (0..asks.chats).map(|_| ClientKind::Chat);
        let kinds = chats.chain((0..asks.agents).map(|_| ClientKind::Agent));
        let clients: Vec<Client> = kinds
            .zip(0..)
            .map(|(kind, client)| {
                let bits = mix(day.seed, 0xc11e, client);
                Client { kind, next_ms: in_hours(kind, pick(bits, 30_000, 600_000)), number: 0 }
            })
            .collect();
        let mut all = Self { clients, next_ms: 0 };
        all.find_next();
        all
    }

    fn find_next(&mut self) {
        self.next_ms = self.clients.iter().map(|client| client.next_ms).min().unwrap_or(i64::MAX);
    }

    /// When somebody asks next.
    #[must_use]
    pub fn next_ms(&self) -> i64 {
        self.next_ms
    }

    /// Requests that are asked at `now_ms`; `next_id` is the first free number.
    pub fn ask(&mut self, day: &Day, now_ms: i64, next_id: usize) -> Vec<Request> {
        let mut asked = Vec::new();
        for index in 0..self.clients.len() {
            if self.clients[index].next_ms > now_ms {
                continue;
            }
            let client = self.clients[index];
            self.clients[index].next_ms = i64::MAX;
            self.clients[index].number += 1;
            let id = |n: usize| RequestId((next_id + n) as u32);
            asked.push(draw(day, index, client.kind, client.number, now_ms, id(asked.len())));
            if client.kind == ClientKind::Chat && day.world.requests.titles {
                asked.push(draw(day, index, ClientKind::Title, client.number, now_ms, id(asked.len())));
            }
        }
        self.find_next();
        asked
    }

    /// Clients wait for what they asked: this one's request has ended.
    pub fn ended(&mut self, day: &Day, request: &Request, now_ms: i64) {
        let Some(index) = request.client else { return };
        let client = &mut self.clients[index];
        let bits = mix(day.seed, 0x7a1e + index as u64, u64::from(client.number));
        let think_ms = match (client.kind, request.end) {
            (_, Some(End::Refused | End::Lost)) => pick(bits, REFUSED_MS.0, REFUSED_MS.1),
            (ClientKind::Agent, _) => pick(bits, 500, 15_000),
            (ClientKind::Chat | ClientKind::Title, _) => pick(bits, 10_000, 240_000),
        };
        client.next_ms = in_hours(client.kind, now_ms + think_ms);
        self.find_next();
    }

    /// The day is over: nobody asks any more.
    pub fn close(&mut self) {
        self.clients.iter_mut().for_each(|client| client.next_ms = i64::MAX);
        self.next_ms = i64::MAX;
    }
}

/// The first moment from `ms` on in the client's hours.
fn in_hours(kind: ClientKind, ms: i64) -> i64 {
    let (open, close) = match kind {
        ClientKind::Agent => AGENT_HOURS,
        ClientKind::Chat | ClientKind::Title => CHAT_HOURS,
    };
    const DAY_MS: i64 = 24 * HOUR_MS;
    let of_wall = ms + FIRST_HOUR * HOUR_MS;
    let (day_ms, in_day) = (of_wall - of_wall % DAY_MS, of_wall % DAY_MS);
    let wall = match in_day {
        _ if in_day < open * HOUR_MS => day_ms + open * HOUR_MS + in_day % 60_000,
        _ if in_day >= close * HOUR_MS => day_ms + DAY_MS + open * HOUR_MS + in_day % 60_000,
        _ => of_wall,
    };
    wall - FIRST_HOUR * HOUR_MS
}

fn draw(day: &Day, index: usize, kind: ClientKind, number: u32, now_ms: i64, id: RequestId) -> Request {
    const TITLE_PROMPT: Range = Range { low: 200, high: 700 };
    const TITLE_ANSWER: Range = Range { low: 6, high: 20 };
    let asks = &day.world.requests;
    let (prompt, answer, purpose, patience_ms) = match kind {
        ClientKind::Chat => (asks.chat_prompt_tokens, asks.answer_tokens, 1, CHAT_PATIENCE_MS),
        ClientKind::Agent => (asks.agent_prompt_tokens, asks.answer_tokens, 2, AGENT_PATIENCE_MS),
        ClientKind::Title => (TITLE_PROMPT, TITLE_ANSWER, 3, AGENT_PATIENCE_MS),
    };
    let mut bits = mix(day.seed, purpose * 1000 + index as u64, u64::from(number));
    let mut next = |range: Range| {
        bits = mix(bits, 1, 2);
        pick(bits, range.low as i64, range.high as i64)
    };
    let prompt_tokens = next(prompt).min(next(prompt)) as u32;
    let answer_tokens = next(answer).min(next(answer)) as u32;
    let goes = next(Range { low: 0, high: 999 }) < asks.cancels_permille as i64 && kind != ClientKind::Title;
    let after_ms = if goes { next(Range { low: 1000, high: 60_000 }) } else { patience_ms };
    let is_poison =
        kind != ClientKind::Title && day.poison.is_some_and(|poison| poison.client == index && poison.number == number);
    Request {
        offer: Offer { request: id, client: kind, prompt_tokens, max_tokens: answer.high as u32 },
        client: (kind != ClientKind::Title).then_some(index),
        answer_tokens,
        poison_at: day.poison.filter(|_| is_poison).map(|poison| poison.at_token.min(answer_tokens)),
        gives_up_ms: now_ms + after_ms,
        position: 0,
        end: None,
        deaths: 0,
    }
}
