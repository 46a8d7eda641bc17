//! A plan held against what was measured, object by object.
//!
//! A figure that was not measured is not invented: its row has a plan and no measurement. What the account as a whole
//! holds beyond its known objects gets a name, [`Object::Unattributed`], so that nobody has to guess which object grew.

use plimsoll_config::units::Bytes;

use super::{Account, AccountId, Basis, Entry, Object};

/// What an account really holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Everybody's bytes together, as the machine counts them.
    pub used: Bytes,
    /// Those objects that their holder reported. An object may come in parts.
    pub objects: Vec<(Object, Bytes)>,
}

/// One object, planned and measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which one.
    pub object: Object,
    /// What the plan said; `None`: nobody planned it.
    pub planned: Option<Bytes>,
    /// What it holds; `None`: nobody reported it.
    pub measured: Option<Bytes>,
}

impl Row {
    /// What counts: the measurement, and the plan where there is none.
    pub fn best(&self) -> Bytes {
        self.measured.or(self.planned).unwrap_or_default()
    }

    /// How far the plan was off, in thousandths of the measurement, rounded up; `None` unless both are there and the
    /// object holds anything.
    pub fn error_permille(&self) -> Option<u64> {
        let (planned, measured) = (self.planned?.0, self.measured?.0);
        let off = u128::from(planned.abs_diff(measured)) * 1000;
        (measured > 0).then(|| u64::try_from(off.div_ceil(u128::from(measured))).unwrap_or(u64::MAX))
    }
}

/// What the objects leave unexplained of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    Explained,
    /// In use, and of no object that we know.
    Unattributed(Bytes),
    /// The objects say more than is in use: a plan that is not yet used up, or bytes that two of them share.
    Overcounted(Bytes),
}

/// An account, planned and measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    /// Which one.
    pub id: AccountId,
    /// Its objects that hold bytes: planned ones in the plan's order, then those that nobody planned.
    pub rows: Vec<Row>,
    /// What is left over.
    pub rest: Rest,
}

/// Holds a planned account against what was measured. Objects that hold no bytes are left out.
pub fn reconcile(planned: &Account, measured: &Measured) -> Reconciled {
    let in_plan = planned.entries.iter().map(|entry| entry.object);
    let mut objects: Vec<Object> = Vec::new();
    for object in in_plan.chain(measured.objects.iter().map(|(object, _)| *object)) {
        if object.is_held() && object != Object::Unattributed && !objects.contains(&object) {
            objects.push(object);
        }
    }
    let reported = |object: Object| {
        let mut parts = measured.objects.iter().filter(|(name, _)| *name == object).peekable();
        parts.peek()?;
        Some(parts.map(|(_, bytes)| *bytes).sum())
    };
    let row = |object| Row { object, planned: planned.object(object), measured: reported(object) };
    let rows: Vec<Row> = objects.into_iter().map(row).collect();
    let known: Bytes = rows.iter().map(Row::best).sum();
    let rest = match (measured.used.saturating_sub(known), known.saturating_sub(measured.used)) {
        (Bytes::ZERO, Bytes::ZERO) => Rest::Explained,
        (Bytes::ZERO, over) => Rest::Overcounted(over),
        (under, _) => Rest::Unattributed(under),
    };
    Reconciled { id: planned.id, rows, rest }
}

impl Reconciled {
    /// The account as it is: measurements where there are some, plans elsewhere, and the rest by its name. Line and title
    /// are the plan's.
    pub fn account(&self, planned: &Account) -> Account {
        let entry = |row: &Row| {
            let planned = planned.entries.iter().find(|entry| entry.object == row.object);
            let basis = match (row.measured, planned) {
                (None, Some(planned)) => planned.basis,
                (Some(_), _) | (None, None) => Basis::Measured,
            };
            let detail = planned.map_or_else(String::new, |planned| planned.detail.clone());
            Entry { object: row.object, bytes: row.best(), basis, detail }
        };
        let mut entries: Vec<Entry> = self.rows.iter().map(entry).collect();
        if let Rest::Unattributed(bytes) = self.rest {
            let detail = "in use, of no known holder".to_owned();
            entries.push(Entry { object: Object::Unattributed, bytes, basis: Basis::Measured, detail });
        }
        Account { entries, asked_beside: Bytes::ZERO, ..planned.clone() }
    }
}
