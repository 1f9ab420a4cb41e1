"""Types of scikit-learn and of the boosting libraries that can be checked, so that a stranger's file may hold them.

They predict by arithmetic on arrays, or by trees, which are looked at. Types that are not here predict by compiled code
that trusts what it is given (libsvm, search trees of neighbours), or can ask for any amount of work (polynomials).
"""

from __future__ import annotations

_TYPES = {
    "lightgbm.basic": "Booster",
    "lightgbm.sklearn": "LGBMClassifier LGBMRegressor",
    "xgboost.core": "Booster",
    "xgboost.sklearn": "XGBClassifier XGBRegressor",
    "sklearn._loss.link": "HalfLogitLink IdentityLink Interval LogLink LogitLink",
    "sklearn._loss.loss": (
        "AbsoluteError ExponentialLoss HalfBinomialLoss HalfGammaLoss HalfPoissonLoss HalfSquaredError HuberLoss "
        "PinballLoss"
    ),
    "sklearn.calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration",
    "sklearn.compose._column_transformer": "ColumnTransformer",
    "sklearn.decomposition._pca": "PCA",
    "sklearn.discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "sklearn.dummy": "DummyClassifier DummyRegressor",
    "sklearn.ensemble._bagging": "BaggingClassifier BaggingRegressor",
    "sklearn.ensemble._forest": (
        "ExtraTreesClassifier ExtraTreesRegressor RandomForestClassifier RandomForestRegressor"
    ),
    "sklearn.ensemble._gb": "GradientBoostingClassifier GradientBoostingRegressor",
    "sklearn.ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting": (
        "HistGradientBoostingClassifier HistGradientBoostingRegressor"
    ),
    "sklearn.ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "sklearn.ensemble._stacking": "StackingClassifier StackingRegressor",
    "sklearn.ensemble._voting": "VotingClassifier VotingRegressor",
    "sklearn.ensemble._weight_boosting": "AdaBoostClassifier AdaBoostRegressor",
    "sklearn.impute._base": "SimpleImputer",
    "sklearn.linear_model._base": "LinearRegression",
    "sklearn.linear_model._coordinate_descent": "ElasticNet Lasso",
    "sklearn.linear_model._glm.glm": "GammaRegressor PoissonRegressor TweedieRegressor",
    "sklearn.linear_model._logistic": "LogisticRegression LogisticRegressionCV",
    "sklearn.linear_model._ridge": "Ridge RidgeClassifier",
    "sklearn.linear_model._stochastic_gradient": "SGDClassifier SGDRegressor",
    "sklearn.model_selection._split": "KFold ShuffleSplit StratifiedKFold StratifiedShuffleSplit",
    "sklearn.naive_bayes": "BernoulliNB GaussianNB",
    "sklearn.neural_network._multilayer_perceptron": "MLPClassifier MLPRegressor",
    "sklearn.neural_network._stochastic_optimizers": "AdamOptimizer SGDOptimizer",
    "sklearn.pipeline": "FeatureUnion Pipeline",
    "sklearn.preprocessing._data": (
        "MaxAbsScaler MinMaxScaler Normalizer PowerTransformer QuantileTransformer RobustScaler StandardScaler"
    ),
    "sklearn.preprocessing._encoders": "OneHotEncoder OrdinalEncoder",
    "sklearn.preprocessing._function_transformer": "FunctionTransformer",
    "sklearn.preprocessing._label": "LabelBinarizer LabelEncoder",
    "sklearn.svm._classes": "LinearSVC LinearSVR",
    "sklearn.tree._classes": "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor",
}
OBJECTS = frozenset(f"{module}.{name}" for module, names in _TYPES.items() for name in names.split())
