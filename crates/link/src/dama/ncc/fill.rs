//! Division of capacity among demands that exceed it.

/// The demand of a terminal, and its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WeightedDemand {
    pub(super) wanted: u64,
    /// Weight in the division; 1 or more.
    pub(super) weight: u64,
}

/// Returns the same part of each demand, rounded down; all of it if there is enough.
pub(super) fn divide_in_proportion(demands: &[WeightedDemand], room: u64) -> Vec<u64> {
    let all: u128 = demands.iter().map(|demand| u128::from(demand.wanted)).sum();
    let part = |demand: &WeightedDemand| {
        if all <= u128::from(room) {
            return demand.wanted;
        }
        // The product may need more than 64 bits.
        (u128::from(demand.wanted) * u128::from(room) / all) as u64
    };
    demands.iter().map(part).collect()
}

/// Divides by weighted max-min fairness (Bertsekas and Gallager, *Data Networks*, §6.5.2): no share
/// exceeds its demand, and all shares below their demands are equal per weight, rounded down.
pub(super) fn divide_fairly(demands: &[WeightedDemand], room: u64) -> Vec<u64> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    // By wanted / weight; cross-multiplied, because division would round.
    order.sort_by(|a, b| {
        let [a, b] = [&demands[*a], &demands[*b]];
        let cross =
            |x: &WeightedDemand, y: &WeightedDemand| u128::from(x.wanted) * u128::from(y.weight);
        cross(a, b).cmp(&cross(b, a))
    });
    let mut weights: u128 = demands.iter().map(|demand| u128::from(demand.weight)).sum();
    let mut left = u128::from(room);
    let mut shares = vec![0; demands.len()];
    for index in order {
        let WeightedDemand { wanted, weight } = demands[index];
        // If all remaining weights are zero, their shares are, too.
        let fair = left * u128::from(weight) / weights.max(1);
        let share = u128::from(wanted).min(fair);
        shares[index] = share as u64;
        left -= share;
        weights -= u128::from(weight);
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn demands(all: &[(u64, u64)]) -> Vec<WeightedDemand> {
        all.iter().map(|&(wanted, weight)| WeightedDemand { wanted, weight }).collect()
    }

    #[test]
    fn small_demands_are_met_and_the_rest_is_shared() {
        let all = demands(&[(100, 1), (3, 1), (100, 1)]);
        assert_eq!(divide_fairly(&all, 43), [20, 3, 20]);
        assert_eq!(divide_in_proportion(&all, 203), [100, 3, 100]);
        assert_eq!(divide_in_proportion(&all, 100), [49, 1, 49]);
        assert_eq!(divide_fairly(&demands(&[(100, 3), (100, 1)]), 40), [30, 10]);
    }

    proptest! {
        #[test]
        fn nothing_is_shared_twice_and_nobody_envies(
            all in prop::collection::vec((0u64..1000, 1u64..5), 0..20), room in 0u64..5000,
        ) {
            let demands = demands(&all);
            let shares = divide_fairly(&demands, room);
            let sum: u64 = shares.iter().sum();
            let wanted: u64 = all.iter().map(|(wanted, _)| wanted).sum();
            prop_assert!(sum <= room);
            // Rounding leaves less than one for each.
            prop_assert!(sum + all.len() as u64 >= room.min(wanted));
            for (demand, share) in demands.iter().zip(&shares) {
                prop_assert!(*share <= demand.wanted);
                for (other, more) in demands.iter().zip(&shares) {
                    let short = *share < demand.wanted;
                    // Rounding moves less than two for each weight.
                    let weight = demand.weight;
                    let others = other.weight;
                    let envies = (share + 2 * weight) * others < more * weight;
                    prop_assert!(!(short && envies), "{:?} {:?}", demands, shares);
                }
            }
            prop_assert!(divide_in_proportion(&demands, room).iter().sum::<u64>() <= room);
        }
    }
}
