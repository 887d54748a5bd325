"""The figures of the dissertation, for comparison.

Thadeu de Russo e Carmo: Uso do padrão AMQP para transporte de mensagens entre atores remotos. Dissertação de
mestrado, Instituto de Matemática e Estatística da Universidade de São Paulo, 2012. Tables 7.1 and 7.2: Akka's
remote actors over Netty and over RabbitMQ, three laptops, 30,000 asks in all, each row the best run by its
mean.

Times are in µs, durations in s. The durations over AMQP of table 7.1 are computed: those over Netty plus the
published difference between the two.
"""

from __future__ import annotations

from typing import Final

from .figures import Figures, TransportKind

TCP, AMQP = TransportKind.TCP, TransportKind.AMQP

CITATION: Final = (
    "Thadeu de Russo e Carmo: Uso do padrão AMQP para transporte de mensagens entre atores remotos. "
    "Dissertação de mestrado, IME-USP, 2012"
)

PublishedTable = dict[tuple[TransportKind, int], Figures]

#                 asks/s   mean    25 %   50 %   75 %    95 %  duration
WIRED: Final[PublishedTable] = {
    (TCP, 1): Figures(501, 1995, 1364, 1433, 1968, 3266, 59.85),
    (AMQP, 1): Figures(263, 3797, 3283, 3361, 3537, 4550, 113.91),
    (TCP, 2): Figures(894, 2238, 1770, 1796, 1836, 3290, 33.57),
    (AMQP, 2): Figures(528, 3789, 3234, 3359, 3552, 4208, 56.83),
    (TCP, 4): Figures(1245, 3212, 2070, 2517, 2726, 4214, 24.09),
    (AMQP, 4): Figures(906, 4416, 3248, 3614, 4134, 5088, 33.12),
    (TCP, 8): Figures(1494, 5353, 3274, 3771, 4745, 6168, 20.07),
    (AMQP, 8): Figures(1389, 5760, 3567, 4149, 5168, 6425, 21.59),
    (TCP, 10): Figures(1542, 6484, 4005, 4330, 5704, 7041, 19.45),
    (AMQP, 10): Figures(1424, 7023, 4396, 5107, 6136, 7610, 21.06),
    (TCP, 20): Figures(1568, 12757, 8206, 9646, 10146, 12015, 19.13),
    (AMQP, 20): Figures(1503, 13309, 8728, 9964, 10888, 13430, 19.95),
    (TCP, 40): Figures(1589, 25176, 17616, 18183, 19436, 21350, 18.82),
    (AMQP, 40): Figures(1518, 26345, 18496, 19525, 20842, 23360, 19.69),
    (TCP, 80): Figures(1615, 49525, 35403, 36541, 37863, 40041, 18.57),
    (AMQP, 80): Figures(1535, 52122, 37915, 39399, 40943, 43496, 19.54),
}

WIRELESS: Final[PublishedTable] = {
    (TCP, 1): Figures(163, 6129, 3387, 4279, 6265, 13403, 183.87),
    (AMQP, 1): Figures(106, 9464, 5998, 7223, 9624, 17360, 283.92),
    (TCP, 2): Figures(341, 5857, 3418, 4113, 5635, 11481, 87.855),
    (AMQP, 2): Figures(152, 13121, 8963, 10784, 14077, 22309, 196.815),
    (TCP, 4): Figures(479, 8337, 5248, 6334, 8219, 13892, 62.5275),
    (AMQP, 4): Figures(183, 21872, 16231, 18823, 22940, 34045, 164.04),
    (TCP, 8): Figures(491, 16292, 10528, 12692, 15780, 23123, 61.095),
    (AMQP, 8): Figures(198, 40463, 26918, 33224, 41392, 58513, 151.73625),
    (TCP, 10): Figures(559, 17883, 12737, 14918, 18099, 25705, 53.649),
    (AMQP, 10): Figures(243, 40891, 29653, 34970, 41936, 56755, 122.673),
    (TCP, 20): Figures(563, 35486, 22392, 26879, 32957, 47837, 53.23),
    (AMQP, 20): Figures(323, 61951, 47710, 55291, 64509, 84108, 92.92),
    (TCP, 40): Figures(607, 65782, 41155, 49748, 60805, 83042, 49.33),
    (AMQP, 40): Figures(390, 98951, 62679, 77785, 98463, 150803, 74.21),
    (TCP, 80): Figures(889, 89089, 36654, 39031, 50225, 103695, 33.41),
    (AMQP, 80): Figures(628, 112913, 66128, 77563, 94990, 139215, 42.34),
}
