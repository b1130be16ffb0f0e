//! Max-min fair shares with weights (water-filling; Bertsekas and Gallager, *Data Networks*, 6.5.2).

/// The level to which a capacity fills the members, each given by weight and demand: each gets the
/// smaller of demand and weight × level, and together they get the capacity. Infinite if they
/// demand no more than that. The order of the members does not matter.
pub(super) fn level(capacity: f64, members: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut members: Vec<(f64, f64)> = members.collect();
    members.sort_by(|(w, d), (v, e)| (d / w).total_cmp(&(e / v)).then(w.total_cmp(v)));
    let mut weights: f64 = members.iter().rev().map(|(weight, _)| weight).sum();
    let mut left = capacity;
    for (weight, demand) in members {
        let level = left / weights;
        if demand > weight * level {
            return level;
        }
        left -= demand;
        weights -= weight;
    }
    f64::INFINITY
}

/// A member's claim on a link, in bit/s.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) weight: f64,
    pub(super) demand: f64,
    /// Its part before the rest is divided by weight.
    pub(super) guaranteed: f64,
}

/// Division of a link: first the guarantees, the rest by weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Division {
    /// The part of each guarantee that the link carries, at most 1.
    kept: f64,
    /// A member's part of the rest for each unit of its weight.
    level: f64,
}

impl Division {
    pub(super) fn of(capacity: f64, wishes: &[Wish]) -> Self {
        let claim = |wish: &Wish| wish.guaranteed.min(wish.demand);
        let claims: f64 = wishes.iter().map(claim).sum();
        // Guarantees beyond the link are scaled, and no member has more of its own than it demands.
        if claims > capacity {
            let claiming = wishes.iter().filter(|wish| wish.guaranteed > 0.0);
            let kept = level(capacity, claiming.map(|wish| (wish.guaranteed, claim(wish))));
            return Self { kept, level: 0.0 };
        }
        let rest = wishes.iter().map(|wish| (wish.weight, wish.demand - claim(wish)));
        Self { kept: 1.0, level: level(capacity - claims, rest) }
    }

    /// The part that a member may use, if it demands as much.
    pub(super) fn part(&self, weight: f64, guaranteed: f64) -> f64 {
        self.kept * guaranteed + self.level * weight
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(capacity: f64, members: &[(f64, f64)]) -> Vec<f64> {
        let level = level(capacity, members.iter().copied());
        members.iter().map(|(weight, demand)| demand.min(weight * level)).collect()
    }

    #[test]
    fn the_rest_of_small_demands_goes_to_the_others_by_weight() {
        let all = f64::INFINITY;
        assert_eq!(shares(50.0, &[(1.0, all), (1.0, all)]), [25.0, 25.0]);
        assert_eq!(shares(40.0, &[(1.0, all), (3.0, all)]), [10.0, 30.0]);
        assert_eq!(shares(50.0, &[(1.0, 10.0), (1.0, all), (3.0, all)]), [10.0, 10.0, 30.0]);
        assert_eq!(shares(50.0, &[(9.0, 10.0), (1.0, all)]), [10.0, 40.0]);
        assert_eq!(shares(50.0, &[(1.0, 10.0), (1.0, 20.0)]), [10.0, 20.0]);
        assert_eq!(shares(50.0, &[]), [0.0; 0]);
    }

    fn members() -> impl Strategy<Value = Vec<(f64, f64)>> {
        let demand = prop_oneof![Just(f64::INFINITY), 0.0..1e8];
        prop::collection::vec(((1u32..=1000).prop_map(f64::from), demand), 1..40)
    }

    proptest! {
        /// Nothing is left while somebody wants more, nobody gets more than it wants, and nobody is
        /// short while another has more per weight.
        #[test]
        fn shares_are_max_min_fair(capacity in 1e4..1e9, members in members()) {
            let shares = shares(capacity, &members);
            let (all, wanted): (f64, f64) = (shares.iter().sum(), members.iter().map(|it| it.1).sum());
            prop_assert!((all - capacity.min(wanted)).abs() <= 1e-9 * capacity, "{all}");
            let most = shares.iter().zip(&members).map(|(got, (weight, _))| got / weight);
            let most = most.fold(0.0, f64::max);
            for (got, (weight, demand)) in shares.iter().zip(&members) {
                prop_assert!(got <= demand);
                prop_assert!(got == demand || got / weight >= most * (1.0 - 1e-9));
            }
        }

        /// Guarantees that the link carries are kept, those beyond its rate scaled, and
        /// nothing is left while somebody wants more.
        #[test]
        fn guarantees_come_first(
            capacity in 1e4..1e9,
            members in prop::collection::vec((1u32..=1000, 0.0..1e8, 0.0..1e7), 1..40),
        ) {
            let wish = |(weight, demand, guaranteed): (u32, f64, f64)| {
                Wish { weight: f64::from(weight), demand, guaranteed }
            };
            let wishes: Vec<Wish> = members.into_iter().map(wish).collect();
            let division = Division::of(capacity, &wishes);
            let got = |wish: &Wish| division.part(wish.weight, wish.guaranteed).min(wish.demand);
            let claim = |wish: &Wish| wish.guaranteed.min(wish.demand);
            let sum = |of: &dyn Fn(&Wish) -> f64| wishes.iter().map(of).sum::<f64>();
            let scale = (capacity / sum(&|wish| wish.guaranteed)).min(1.0);
            for wish in &wishes {
                let least = claim(wish).min(wish.guaranteed * scale);
                prop_assert!(got(wish) >= least * (1.0 - 1e-9), "{wish:?}");
            }
            let all = capacity.min(sum(&|wish| wish.demand));
            prop_assert!((sum(&got) - all).abs() <= 1e-9 * capacity, "{} of {all}", sum(&got));
        }

        #[test]
        fn the_order_does_not_matter(
            capacity in 1e4..1e9,
            (members, other) in members().prop_flat_map(|m| (Just(m.clone()), Just(m).prop_shuffle())),
        ) {
            prop_assert_eq!(
                level(capacity, members.into_iter()).to_bits(),
                level(capacity, other.into_iter()).to_bits()
            );
        }
    }
}
