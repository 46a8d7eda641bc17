//! The plan of the simulator's own policies: from home down the ladder until it fits.

use super::lever::{Account, Card, Lever, Positions};
use super::policy::{CardFacts, Facts};
use super::sight::Sight;
use plimsoll_config::units::Bytes;

/// Positions are whole slabs.
const SLAB: u64 = 2 << 20;

/// Bytes that a worker's levers may hold in each account; negative: not even its fixed part fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room(pub [i64; Account::COUNT]);

/// The room that the readings leave a new worker under every line; `None` without readings.
#[must_use]
pub fn room(facts: &Facts, sight: &Sight) -> Option<Room> {
    let mut room = [0; Account::COUNT];
    let host = sight.host?.value;
    room[Account::Host.index()] = host.room_to_line() + host.ours.0 as i64 - facts.host_fixed.0 as i64;
    for card in &facts.cards {
        let reading = sight.cards.get(card.card.index()).copied().flatten()?.value;
        room[Account::Vram(card.card).index()] = reading.free.0 as i64 - beside(card).0 as i64;
    }
    Some(Room(room))
}

/// What has to fit on a card beside the levers.
#[must_use]
pub fn beside(card: &CardFacts) -> Bytes {
    card.fixed.saturating_add(card.prompt_path).saturating_add(card.request_line)
}

/// Knobs within the room, each account down its ladder from home; `None` when floors are too much.
#[must_use]
pub fn fit(facts: &Facts, room: &Room) -> Option<Positions> {
    let mut knobs = Positions::default();
    facts.levers.iter().for_each(|lever| knobs.set(lever.lever, lever.home));
    let cards = facts.cards.iter().map(|card| Account::Vram(card.card));
    for account in std::iter::once(Account::Host).chain(cards) {
        let mine = || facts.levers.iter().filter(move |lever| lever.lever.account() == account);
        let all: Bytes = mine().map(|lever| lever.home).sum();
        let mut excess = all.0 as i64 - room.0[account.index()];
        for lever in mine() {
            if excess <= 0 {
                break;
            }
            let to = lower(lever.lever, lever.home, lever.floor, excess);
            knobs.set(lever.lever, to);
            excess -= (lever.home.0 - to.0) as i64;
        }
        if excess > 0 {
            return None;
        }
    }
    Some(knobs)
}

/// The position that gives `bytes` back, or the floor.
#[must_use]
pub fn lower(lever: Lever, from: Bytes, floor: Bytes, bytes: i64) -> Bytes {
    if matches!(lever, Lever::Draft(Card(_))) {
        return floor;
    }
    let give = (bytes.max(0) as u64).div_ceil(SLAB) * SLAB;
    from.saturating_sub(Bytes(give)).max(floor)
}
